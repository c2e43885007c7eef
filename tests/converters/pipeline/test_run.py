import json
from datetime import timedelta
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from spanloop.converters import Options
from spanloop.foundation.tables.episodes import STEP_MEASURES
from spanloop.pipeline import Report, run, run_lease
from spanloop.store import Store

from ..converters import converters_recordings as recordings
from ..converters.converters_world import OPENING, START, loop, stored_frame, text, trace_id
from ..converters.pipeline_feed import Feed

TABLES = ("transitions", "trajectories", "failures")


def snapshot(feed: Feed) -> list[pl.DataFrame]:
    episodes = feed.sql("SELECT * EXCEPT converted_at FROM episodes FINAL WHERE is_deleted = 0 ORDER BY episode_id")
    return [episodes, *(feed.current(table) for table in TABLES)]


def assert_same(one: list[pl.DataFrame], other: list[pl.DataFrame], *, but: tuple[str, ...] = ()) -> None:
    for left, right in zip(one, other, strict=True):
        dropped = [name for name in but if name in left.columns]
        assert_frame_equal(left.drop(dropped), right.drop(dropped))


def test_what_is_stored_is_what_the_converters_say(store: Store, feed: Feed) -> None:
    world = feed.world
    loop(world, "a", trace=trace_id("a"), attributes={"spanloop.episode.id": "ea", "spanloop.task.id": "task-1"})
    world.capture([1, 2], [3], response_id="chatcmpl-1")
    world.capture([1, 2, 3, 4], [5], response_id="chatcmpl-2")
    world.call(OPENING, None, trace=trace_id("b"), error="Error code: 429")
    world.score(1.0, episode_key="ea", label="pass")
    feed.send()
    report = run(store)
    assert report == Report(
        spans=4,
        episodes=2,
        transitions=4,
        trajectories=1,
        row_starts={"first": 1},
        failures=1,
        trainable=3,
        untrainable={"request_failed": 1},
    )
    converted = world.convert()
    for name in TABLES:
        frame = getattr(converted, name)
        only_stored = {column.name for column in STEP_MEASURES} & set(frame.columns)
        expected = frame.drop("revision", *only_stored).sort("episode_id", pl.first())
        got = (
            feed.current(name)
            .drop("revision")
            .select(expected.columns)
            .cast(dict(expected.schema))
            .sort("episode_id", pl.first())
        )
        assert_frame_equal(got, expected)
    assert [(e["episode_id"], e["reward"], e["task_id"]) for e in feed.episodes()] == [
        ("ea", 1.0, "task-1"),
        (trace_id("b"), None, ""),
    ]


def test_running_twice_changes_nothing(store: Store, feed: Feed) -> None:
    loop(feed.world, "a")
    feed.send()
    run(store)
    before = snapshot(feed)
    assert run(store) == Report()
    assert_same(snapshot(feed), before)
    again = run(store, full=True)
    assert (again.spans, again.episodes, again.transitions) == (3, 1, 3)
    assert_same(snapshot(feed), before)


def test_a_run_reads_arrivals_before_and_under_its_lease_and_those_of_its_tail(
    store: Store, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries: list[str] = []
    query = Store.query

    def recorded(store: Store, query_name: str, /, **parameters: object) -> pl.DataFrame:
        queries.append(query_name)
        return query(store, query_name, **parameters)

    monkeypatch.setattr(Store, "query", recorded)
    loop(feed.world, "a")
    feed.send()
    assert run(store).episodes == 1
    assert queries.count("pipeline_arrivals") == 3
    queries.clear()
    assert run(store) == Report()
    assert queries.count("pipeline_arrivals") == 1


def test_a_late_span_makes_a_new_revision_and_never_a_second_row(store: Store, feed: Feed) -> None:
    loop(feed.world, "a", steps=3, trace=trace_id("a"))
    feed.send([0, 1])
    run(store)
    first = feed.episodes()
    feed.send([2])
    report = run(store)
    assert (report.spans, report.episodes, report.transitions) == (1, 1, 3)
    second = feed.episodes()
    assert len(first) == len(second) == 1
    assert second[0]["revision"] > first[0]["revision"]
    assert (second[0]["step_count"], second[0]["is_terminated"]) == (3, True)
    assert feed.current("transitions").height == 3
    kept = feed.sql(f"SELECT count() AS n FROM transitions FINAL WHERE revision = {first[0]['revision']}")
    assert kept.item() == 2


def test_a_scattered_loop_is_joined_over_runs(store: Store, feed: Feed) -> None:
    loop(feed.world, "a", steps=4)
    for number in range(4):
        feed.send([number])
        run(store)
    (episode,) = feed.episodes()
    assert episode["step_count"] == 4
    assert episode["episode_id"] == min(span["TraceId"] for span in feed.world.spans)
    assert feed.current("transitions")["step"].to_list() == [0, 1, 2, 3]


def test_a_late_span_that_joins_two_episodes_leaves_a_tombstone(store: Store, feed: Feed) -> None:
    loop(feed.world, "a", steps=3)
    feed.send([0, 2])
    run(store)
    assert [episode["step_count"] for episode in feed.episodes()] == [1, 1]
    feed.send([1])
    report = run(store)
    assert (report.episodes, report.tombstones) == (1, 1)
    (episode,) = feed.episodes()
    assert episode["step_count"] == 3
    stones = feed.sql("SELECT episode_id FROM episodes FINAL WHERE is_deleted = 1")
    assert stones.height == 1
    assert stones.item() != episode["episode_id"]
    assert run(store, full=True).tombstones == 0


def test_a_late_score_makes_a_new_revision(store: Store, feed: Feed) -> None:
    loop(feed.world, "a", trace=trace_id("a"), attributes={"spanloop.episode.id": "ea", "session.id": "s"})
    feed.send()
    run(store)
    for ids in ({"episode_key": "ea"}, {"trace_id": trace_id("a")}, {"response_id": "chatcmpl-1"}, {"session_id": "s"}):
        before = feed.episodes()[0]["revision"]
        feed.world.score(1.0, score_id=str(ids), at_s=900, **ids)
        feed.send()
        assert run(store).episodes == 1, ids
        assert feed.episodes()[0]["revision"] > before
    assert feed.episodes()[0]["reward"] == 1.0


def test_a_score_of_a_session_with_several_episodes_judges_none_however_they_arrive(store: Store, feed: Feed) -> None:
    world = feed.world
    loop(world, "a", trace=trace_id("a"), attributes={"session.id": "s"})
    world.score(1.0, session_id="s")
    feed.send()
    run(store)
    assert [episode["reward"] for episode in feed.episodes()] == [1.0]
    loop(world, "b", trace=trace_id("b"), attributes={"session.id": "s"})
    feed.send()
    report = run(store)
    assert world.convert().episodes["reward"].to_list() == [None, None]
    assert [episode["reward"] for episode in feed.episodes()] == [None, None]
    assert report.rejected == {"score_ambiguous": 1}
    before = snapshot(feed)
    run(store, full=True, batch_spans=1)
    assert_same(snapshot(feed), before)


@pytest.mark.parametrize(("joins", "steps"), [(True, [3]), pytest.param(False, [1, 1, 1], marks=pytest.mark.slow)])
def test_a_session_is_an_episode_over_runs_where_that_was_chosen(
    store: Store, feed: Feed, *, joins: bool, steps: list[int]
) -> None:
    for number in range(3):
        seen = [OPENING[0], text("user", f"question {number}")]
        world_trace = trace_id(f"t{number}")
        feed.world.call(
            seen, text("assistant", "x"), trace=world_trace, attributes={"session.id": "s"}, start_s=number * 3600
        )
        feed.send()
        run(store, options=Options(session_is_episode=joins))
    assert [episode["step_count"] for episode in feed.episodes()] == steps


def test_a_late_capture_brings_the_tokens(store: Store, feed: Feed) -> None:
    loop(feed.world, "a", trace=trace_id("a"))
    feed.send()
    assert run(store).trajectories == 0
    feed.world.capture([1], [2], response_id="chatcmpl-1")
    feed.send()
    assert run(store).trajectories == 1


def test_a_late_call_shows_which_choice_was_used(store: Store, feed: Feed) -> None:
    world, choices = feed.world, [text("assistant", "One."), text("assistant", "Two.")]
    told = {"gen_ai.output.messages": json.dumps(choices)}
    world.call(OPENING, choices[0], trace=trace_id("a"), response_id="r", attributes=told)
    for place in (0, 1):
        world.capture([1], [2 + place], response_id="r", choice=place)
    feed.send()
    run(store)
    assert feed.current("transitions")["untrainable_reason"].to_list() == ["ambiguous_choice"]
    world.call([*OPENING, choices[1], text("user", "Sure?")], text("assistant", "Yes."), trace=trace_id("a"))
    feed.send()
    run(store)
    first, last = feed.current("transitions").iter_rows(named=True)
    assert (first["response_token_ids"], first["is_trainable"], last["is_trainable"]) == ([3], True, True)
    expected = world.convert()
    assert feed.current("trajectories")["loss_mask"].to_list() == expected.trajectories["loss_mask"].to_list()


@pytest.mark.parametrize("named", ["response_id", "trace"])
def test_a_capture_by_a_clock_that_is_a_month_off_brings_the_tokens(store: Store, feed: Feed, named: str) -> None:
    calls = loop(feed.world, "a", trace=trace_id("a"))
    if named == "response_id":
        feed.world.capture([1], [2], response_id="chatcmpl-1")
    else:
        feed.world.capture([1], [2], trace=trace_id("a"), parent=calls[0])
    feed.send(captured=START - timedelta(days=30))
    assert run(store).trajectories == 1


def test_late_log_events_bring_the_messages(store: Store, feed: Feed) -> None:
    world, trace = feed.world, trace_id("a")
    own = world.span("chat", {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}, trace=trace)
    feed.send()
    assert run(store).untrainable == {"missing_content": 1}
    told = [("gen_ai.user.message", '{"content": "q"}'), ("gen_ai.choice", '{"index": 0, "message": {"content": "a"}}')]
    rows = [
        {
            "Timestamp": world.spans[0]["Timestamp"] + number,
            "TraceId": trace,
            "SpanId": own,
            "EventName": name,
            "Body": body,
        }
        for number, (name, body) in enumerate([*told, ("gen_ai.evaluation.result", "")])
    ]
    feed.send_logs(pl.DataFrame(rows).with_columns(pl.col("Timestamp").cast(pl.Datetime("ns", "UTC"))))
    before = feed.episodes()[0]["revision"]
    report = run(store)
    assert (report.episodes, report.trainable, report.untrainable) == (1, 1, {})
    assert feed.episodes()[0]["revision"] > before
    assert run(store) == Report()


def test_requests_that_claude_code_logs_around_its_calls_are_read(store: Store, feed: Feed) -> None:
    recorded = recordings.load("claude_code_bodies")
    spans = recordings.span_frame(recorded["spans"], START)
    store.insert("otel_traces", stored_frame(spans, store.schema("otel_traces")))
    assert run(store).trainable == 0
    feed.send_logs(recordings.log_frame(recorded["log_events"]))
    report = run(store)
    assert (report.trainable, report.untrainable) == (10, {})


def test_a_loop_of_another_dialect_is_joined_over_runs(store: Store, feed: Feed) -> None:
    asked = [{"role": "user", "content": "q"}]
    for step, answer in enumerate(("a", "b")):
        request, response = {"messages": asked}, {"choices": [{"message": {"role": "assistant", "content": answer}}]}
        values = {
            "openinference.span.kind": "LLM",
            "input.value": json.dumps(request),
            "output.value": json.dumps(response),
        }
        feed.world.span("call", values, trace=trace_id(f"t{step}"))
        feed.send()
        run(store)
        asked = [*asked, {"role": "assistant", "content": answer}, {"role": "user", "content": "more"}]
    assert [episode["step_count"] for episode in feed.episodes()] == [2]


def test_a_corrected_score_counts_and_a_withdrawn_one_does_not(store: Store, feed: Feed) -> None:
    loop(feed.world, "a", trace=trace_id("a"))
    feed.world.score(0.0, trace_id=trace_id("a"), score_id="s")
    feed.send()
    run(store)
    rewards = [feed.episodes()[0]["reward"]]
    for value, gone in ((1.0, 0), (1.0, 1)):
        feed.world.score(value, trace_id=trace_id("a"), score_id="s", at_s=900, is_deleted=gone)
        feed.send()
        run(store)
        rewards.append(feed.episodes()[0]["reward"])
    assert rewards == [0.0, 1.0, None]


def test_a_repeated_delivery_changes_nothing(store: Store, feed: Feed) -> None:
    loop(feed.world, "a")
    feed.send()
    run(store)
    before = snapshot(feed)
    feed.send([0, 1, 2])
    report = run(store)
    assert (report.spans, report.episodes) == (3, 0)
    assert report.rejected == {"duplicate_span": 3}
    assert_same(snapshot(feed), before)


def test_rows_that_become_visible_late_are_not_missed(store: Store, feed: Feed) -> None:
    loop(feed.world, "a", trace=trace_id("a"))
    loop(feed.world, "b", trace=trace_id("b"))
    feed.send([0, 1, 2])
    run(store)
    feed.send([3, 4, 5], minutes=-0.2)
    assert run(store).episodes == 1
    assert len(feed.episodes()) == 2


@pytest.mark.parametrize("batch_spans", [pytest.param(1, marks=pytest.mark.slow), 5])
def test_the_size_of_batches_does_not_matter(store: Store, feed: Feed, batch_spans: int) -> None:
    for name in "ab":
        loop(feed.world, name, attributes={"session.id": name})
        loop(feed.world, f"named-{name}", attributes={"spanloop.episode.id": f"e{name}"})
    feed.send()
    seen: list[tuple[int, int]] = []
    run(store, batch_spans=batch_spans, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (12, 12)
    assert len(seen) >= 12 // batch_spans
    assert [episode["step_count"] for episode in feed.episodes()] == [3] * 4
    assert feed.current("transitions").height == 12


class CrashError(Exception):
    """What a dying process looks like from inside."""


@pytest.mark.parametrize("survived", [0, *(pytest.param(each, marks=pytest.mark.slow) for each in (1, 2, 3)), 4])
def test_a_run_that_dies_between_two_inserts_is_mended_by_the_next(
    store: Store, feed: Feed, monkeypatch: pytest.MonkeyPatch, survived: int
) -> None:
    loop(feed.world, "a", trace=trace_id("a"))
    feed.world.capture([1], [2], response_id="chatcmpl-1")
    feed.world.call(OPENING, None, trace=trace_id("b"), error="Error code: 429")
    feed.send()
    original = store.insert
    calls = iter(range(100))

    def insert(table: str, frame: pl.DataFrame, **options: Any) -> int:
        if table == "pipeline_state" and frame.item(0, "name") == run_lease.NAME:
            return original(table, frame, **options)
        if next(calls) >= survived:
            raise CrashError(table)
        return original(table, frame, **options)

    with monkeypatch.context() as patched:
        patched.setattr(store, "insert", insert)
        with pytest.raises(CrashError):
            run(store)
    if survived < 4:
        assert feed.episodes() == []
    run(store)
    after = snapshot(feed)
    expected = feed.world.convert()
    assert [frame.height for frame in after] == [frame.height for frame in expected[:4]]
    assert feed.sql("SELECT count() AS n FROM transitions FINAL").item() == 4


def test_another_converter_version_reconverts_under_a_new_revision(
    store: Store, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop(feed.world, "a")
    feed.send()
    run(store)
    before = feed.episodes()[0]
    monkeypatch.setattr("spanloop.pipeline.write.CONVERTER_VERSION", "next")
    monkeypatch.setattr("spanloop.converters.rows.CONVERTER_VERSION", "next")
    assert run(store, full=True).episodes == 1
    after = feed.episodes()[0]
    assert (after["revision"], after["converter_version"]) == (before["revision"] + 1, "next")
    assert run(store, full=True).episodes == 1
    assert feed.episodes()[0]["revision"] == after["revision"]


def test_an_empty_store_has_nothing_to_convert(store: Store) -> None:
    assert run(store) == Report()
    assert run(store, full=True) == Report()


def test_rejections_are_counted_by_reason(store: Store, feed: Feed) -> None:
    world = feed.world
    world.span("llm", {"acme.span.kind": "LLM"}, trace=trace_id("a"))
    world.span("http", {}, trace=trace_id("b"))
    loop(world, "c", trace=trace_id("c"))
    world.tool("c-0", "ok", trace=trace_id("c"))
    world.score(float("nan"), trace_id=trace_id("c"))
    feed.send()
    assert run(store).rejected == {"no_model_call": 1, "score_not_finite": 1, "unsupported_dialect": 1}


def test_many_traces_do_not_outgrow_a_request(store: Store, feed: Feed) -> None:
    world = feed.world
    for number in range(2_500):
        world.call([text("user", f"{number}")], text("assistant", "x"), trace=f"{number:032x}")
    feed.send()
    report = run(store)
    assert (report.spans, report.episodes) == (2_500, 2_500)


def test_an_episode_that_falls_apart_keeps_both_halves(store: Store, feed: Feed) -> None:
    world = feed.world
    shared = trace_id("shared")
    world.call(OPENING, text("assistant", "x"), trace=shared, attributes={"spanloop.episode.id": "one"})
    world.call(OPENING, text("assistant", "y"), trace=shared)
    feed.send()
    run(store)
    assert [(e["episode_id"], e["step_count"]) for e in feed.episodes()] == [("one", 2)]
    world.span("task", {"spanloop.episode.id": "two"}, trace=shared)
    feed.send()
    run(store)
    assert sorted((e["episode_id"], e["step_count"]) for e in feed.episodes()) == sorted([("one", 1), (shared, 1)])


def test_a_loop_that_spans_two_batches_is_joined_among_many_neighbours(store: Store, feed: Feed) -> None:
    world = feed.world
    for number in range(60):
        world.call([text("user", f"{number}")], text("assistant", "x"), trace=f"{number:032x}", duration_s=0.1)
        if number in {20, 40}:
            loop(world, f"l{number}", duration_s=0.1)
    feed.send()
    run(store, batch_spans=21)
    assert sorted(e["step_count"] for e in feed.episodes()) == [1] * 60 + [3] * 2
