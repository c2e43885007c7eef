"""The trace of a job: its spans in the store, and no episode."""

import pytest

from spanloop.foundation.errors import JobError, StoreError
from spanloop.pipeline import run as convert
from spanloop.semconv import attributes as names
from spanloop.store import Store
from spanloop.training.run.monitor.job_trace import JobTrace, trace_id_of
from spanloop.training.run.monitor.metrics import StepMetrics
from spanloop.training.verl_plugin.drift import KL


def traced() -> JobTrace:
    trace = JobTrace("job-1", 3, {names.RL_JOB_KIND: "grpo"})
    with trace.span("rl.train"):
        trace.steps([StepMetrics(1, {"actor/pg_loss": 0.5, "batch_reward": 0.25, KL: 0.01})])
        trace.steps([StepMetrics(2, {"timing_s/save_checkpoint": 0.0}), StepMetrics(3, {})])
    with pytest.raises(JobError), trace.span("rl.deploy"):
        raise JobError("it cannot be served")
    trace.finish()
    return trace


def test_an_attempt_is_one_trace_that_no_conversion_makes_an_episode_of(store: Store) -> None:
    trace = traced()
    trace.flush(store, is_last=True)
    trace.flush(store, is_last=True)
    spans = store.query("trace_spans", trace_id=trace_id_of("job-1", 3))
    by_name = {name: spans.filter(spans["SpanName"] == name) for name in spans["SpanName"].unique()}
    assert {name: rows.height for name, rows in by_name.items()} == {
        "rl.job": 1, "rl.train": 1, "rl.step": 3, "rl.checkpoint": 1, "rl.deploy": 1
    }  # fmt: skip
    root, train = by_name["rl.job"].row(0, named=True), by_name["rl.train"].row(0, named=True)
    assert (root["ParentSpanId"], train["ParentSpanId"]) == ("", root["SpanId"])
    steps = by_name["rl.step"].sort("Timestamp")
    assert steps["ParentSpanId"].to_list() == [train["SpanId"]] * 3
    first = dict(steps["SpanAttributes"][0])
    assert first == {"rl.step": "1", "rl.loss": "0.5", "rl.reward": "0.25", "rl.kl": "0.01"}
    deploy = by_name["rl.deploy"].row(0, named=True)
    assert (deploy["StatusCode"], deploy["StatusMessage"]) == ("Error", "it cannot be served")
    convert(store)
    assert store.query("store_counts").filter(table_name="episodes")["row_count"].item() == 0


def test_spans_wait_for_a_store_that_does_not_answer(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    trace = traced()
    with monkeypatch.context() as patch:
        patch.setattr(store, "insert", _refuse)
        trace.flush(store, is_last=True)
    assert "7 spans of the job wait for the store" in caplog.text
    trace.flush(store, is_last=True)
    assert store.query("trace_spans", trace_id=trace.trace_id).height == 7


def _refuse(*_: object, **__: object) -> None:
    raise StoreError("unreachable")
