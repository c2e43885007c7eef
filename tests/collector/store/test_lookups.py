"""Lookups that summaries narrow down find what they would find without, whatever its time and age."""

import time
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from spanloop.administration.forget import forget
from spanloop.store import Store

from ...conftest import MakeFrame

SECOND = 10**9
START = 1_760_000_000 * SECOND
LAST_NS = 2**32 * SECOND - 1
TIMES = (0, 1, START, START + 40 * 86_400 * SECOND, LAST_NS)
TRACES = tuple(f"{number:032x}" for number in range(1, len(TIMES) + 1))


def insert_spans(store: Store, frame_of: MakeFrame, trace_ids: Sequence[str], **others: object) -> None:
    rows = [
        {"TraceId": trace_id, "SpanId": "1" * 16, "Timestamp": at, "Duration": 2**64 - 1, **others}
        for trace_id, at in zip(trace_ids, TIMES, strict=True)
    ]
    frame = frame_of("otel_traces", rows)
    store.insert("otel_traces", frame if "IngestedAt" in others else frame.drop("IngestedAt"))


def insert_logs(store: Store, frame_of: MakeFrame, trace_id: str) -> None:
    """Two records that tell of a span at each of the times, one of them twice, and one that tells of none."""
    record = {"TraceId": trace_id, "SpanId": "1" * 16, "EventName": "gen_ai.choice"}
    rows = [record | {"Timestamp": at, "Body": str(at)} for at in (*TIMES, START)]
    store.insert("otel_logs", frame_of("otel_logs", [*rows, rows[0] | {"EventName": "else"}]).drop("IngestedAt"))


@pytest.mark.parametrize("traces", [1, len(TIMES)])
def test_spans_of_any_time_are_found(store: Store, frame_of: MakeFrame, traces: int) -> None:
    before_us = time.time_ns() // 1_000 - 60_000_000
    insert_spans(store, frame_of, [TRACES[number % traces] for number in range(len(TIMES))])
    arrived = store.query("pipeline_arrivals", since_us=before_us).row(0, named=True)
    assert arrived["arrived"] == len(TIMES)
    since = {"since_us": before_us, "until_us": arrived["until_us"], "counted_since_us": before_us}
    assert store.query("pipeline_windows", **since, max_spans=100)["new_spans"].to_list() == [len(TIMES)]
    page = {"after_ns": -(2**63), "after_trace_id": "", "max_traces": 100}
    touched = store.query("pipeline_touched", **since, **page)
    assert (touched["spans"].sum(), touched["new_spans"].sum()) == (len(TIMES), len(TIMES))
    assert sorted(touched["trace_id"]) == sorted(TRACES[:traces])
    assert store.query("import_known_spans", trace_ids=list(TRACES)).height == traces
    span_count = sum(store.query("trace_spans", trace_id=trace_id).height for trace_id in TRACES)
    assert span_count == len(TIMES)


def test_the_newest_arrival_is_known_when_nothing_has_come_since(store: Store, frame_of: MakeFrame) -> None:
    assert store.query("pipeline_arrivals", since_us=0).row(0) == (0, 0)
    came = datetime(2025, 3, 1, tzinfo=UTC)
    insert_spans(store, frame_of, TRACES, IngestedAt=came)
    arrived = store.query("pipeline_arrivals", since_us=time.time_ns() // 1_000)
    assert arrived.row(0) == (int(came.timestamp()) * 1_000_000, 0)


def log_records(store: Store, trace_id: str) -> list[str]:
    return sorted(store.query("pipeline_logs", trace_ids=[trace_id, TRACES[1]])["Body"])


def test_log_records_of_any_time_are_found(store: Store, frame_of: MakeFrame) -> None:
    insert_logs(store, frame_of, TRACES[0])
    insert_logs(store, frame_of, TRACES[2])
    expected = sorted(map(str, (*TIMES, START)))
    assert log_records(store, TRACES[0]) == expected
    arrived = store.query("pipeline_arrivals", since_us=0)["arrived"].item()
    assert arrived == 2 * len(expected)
    insert_spans(store, frame_of, TRACES)
    at = {"from_ns": 0, "until_ns": LAST_NS}
    sizes = {row[0]: row[2] for row in store.query("pipeline_sizes", trace_ids=list(TRACES), **at).iter_rows()}
    assert sizes[TRACES[0]] - sizes[TRACES[1]] >= sum(map(len, expected))
    since = {"since_us": 0, "until_us": time.time_ns() // 1_000 + 10**9, "counted_since_us": 0}
    page = {"after_ns": -(2**63), "after_trace_id": "", "max_traces": 100}
    assert store.query("pipeline_touched", **since, **page)["trace_id"].to_list() == list(TRACES)


def test_a_job_that_records_again_is_one_job(store: Store, frame_of: MakeFrame) -> None:
    def record(step: int, *names: str) -> None:
        rows = [{"job_id": "job", "step": step, "name": name, "value": 1.0} for name in names]
        store.insert("training_metrics", frame_of("training_metrics", rows).drop("recorded_at"))

    for step in (1, 2, 1):  # started again
        record(step, "loss", "reward")
    record(2, "time")
    (row,) = store.query("dashboard_metric_jobs", max_rows=9).iter_rows(named=True)
    assert (row["job_id"], row["last_step"], row["metrics"]) == ("job", 2, 3)
    newest = store.query("training_metrics", job_id="job")
    assert newest.height == 5


def test_the_rest_of_a_forgotten_episode_counts_as_new(store: Store, frame_of: MakeFrame) -> None:
    insert_spans(store, frame_of, TRACES, IngestedAt=datetime(2025, 3, 1, tzinfo=UTC))
    episode = {"episode_id": "e", "revision": 1, "trace_ids": list(TRACES), "started_at": START}
    store.insert("episodes", frame_of("episodes", [episode]).drop("converted_at"))
    insert_logs(store, frame_of, TRACES[0])
    insert_logs(store, frame_of, TRACES[1])
    since_us = time.time_ns() // 1_000
    forget(store, trace_id=TRACES[0])
    assert store.query("pipeline_arrivals", since_us=since_us)["arrived"].item() == len(TIMES) - 1
    counts = dict(store.query("store_counts").select("table_name", "row_count").iter_rows())
    assert counts["log_summaries"] == len(TIMES) - 1  # two of the times are within the same ten minutes
    assert log_records(store, TRACES[0]) == log_records(store, TRACES[1])
