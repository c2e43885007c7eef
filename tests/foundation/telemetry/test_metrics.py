"""The Prometheus text that every role renders."""

import pytest

from spanloop.foundation.telemetry.metrics import Metrics

FAMILIES = {
    "jobs": ("gauge", "Jobs by state."),
    "seen_total": ("counter", "What was seen."),
    "round_seconds": ("histogram", "Duration."),
}


def test_counters_gauges_and_histograms_have_type_description_and_labels() -> None:
    metrics = Metrics("x_", FAMILIES)
    metrics.count("seen_total", 2, kind='a "b"\n\\')
    metrics.count("seen_total", 0.5, kind='a "b"\n\\')
    metrics.count("seen_total", 0, kind="none")
    metrics.set("jobs", 3)
    metrics.set("jobs", 2)
    metrics.observe("round_seconds", 0.02)
    metrics.observe("round_seconds", 1_000)
    lines = metrics.render().splitlines()
    assert lines[:5] == [
        "# HELP x_jobs Jobs by state.",
        "# TYPE x_jobs gauge",
        "x_jobs 2",
        "# HELP x_seen_total What was seen.",
        "# TYPE x_seen_total counter",
    ]
    assert lines[5] == r'x_seen_total{kind="a \"b\"\n\\"} 2.5'
    assert 'x_round_seconds_bucket{le="0.01"} 0' in lines
    assert 'x_round_seconds_bucket{le="0.025"} 1' in lines
    assert 'x_round_seconds_bucket{le="300.0"} 1' in lines
    assert 'x_round_seconds_bucket{le="+Inf"} 2' in lines
    assert lines[-2:] == ["x_round_seconds_sum 1000.02", "x_round_seconds_count 2"]
    assert (metrics.get("seen_total", kind="other"), metrics.sum_by("seen_total", "kind")) == (0, {'a "b"\n\\': 2})


def test_a_name_that_is_not_declared_is_refused() -> None:
    metrics = Metrics("x_", FAMILIES)
    for use in (metrics.count, metrics.set):
        with pytest.raises(ValueError, match="no metric is named 'seen'; expected one of jobs, seen_total"):
            use("seen", 1)
