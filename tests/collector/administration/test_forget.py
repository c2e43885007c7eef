"""Forgetting: afterwards no table holds the data, and all other rows are unchanged."""

import base64
import time
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from spanloop.administration.forget import forget
from spanloop.foundation.errors import ConfigurationError, JobError
from spanloop.importing import import_paths
from spanloop.pipeline import run as convert
from spanloop.store import Store
from spanloop.store.client import Connection

from ...conftest import MakeFrame
from ...stored_states import insert_transitions

TRACES = {"erased": "e" * 32, "kept": "a" * 32, "joined": "b" * 32}
MESSAGES = '[{"role":"user","parts":[{"type":"text","content":"%s"}]}]'


def insert_episode(store: Store, frame_of: MakeFrame, name: str, **attributes: str) -> None:
    """Insert one episode with rows in every table; ``name`` is in every text."""
    trace, response = TRACES[name], f"response-{name}"
    span = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "gen_ai.response.id": response,
        "gen_ai.response.finish_reasons": '["stop"]',
        "gen_ai.input.messages": MESSAGES % f"secret of {name}",
        "gen_ai.output.messages": MESSAGES.replace("user", "assistant") % f"answer to {name}",
        **attributes,
    }
    tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.call.result": f"Error: {name}", **attributes}
    rows = [
        {"Timestamp": 10**18, "TraceId": trace, "SpanId": "1" * 16, "ServiceName": name, "SpanAttributes": span},
        {"Timestamp": 10**18, "TraceId": trace, "SpanId": "2" * 16, "ServiceName": name, "SpanAttributes": tool},
    ]
    store.insert("otel_traces", frame_of("otel_traces", rows).drop("IngestedAt"))
    log = {"Timestamp": 10**18, "TraceId": trace, "Body": f"log of {name}", "EventName": "gen_ai.evaluation.result"}
    value = {"gen_ai.evaluation.name": "reward", "gen_ai.evaluation.score.value": "0.5"}
    store.insert("otel_logs", frame_of("otel_logs", [log | {"LogAttributes": value}]).drop("IngestedAt"))
    scores = [{"score_id": f"s-{name}", "name": "style", "value": 1.0, "comment": name, "response_id": response}]
    store.insert("scores", frame_of("scores", scores).drop("ingested_at"))
    captured = [{"generation_id": f"{response}/0", "response_id": response, "model": name, "started_at": 10**18}]
    store.insert("generations", frame_of("generations", captured).drop("ingested_at"))
    letters = [{"dead_letter_id": name, "detail": name, "trace_ids": [trace], "received_at": time.time_ns()}]
    store.insert("dead_letters", frame_of("dead_letters", letters).drop("written_at"))


@pytest.fixture
def everything(store: Store, connection: Connection) -> Any:
    """All rows of all tables with user data, as text."""

    def read() -> dict[str, list[str]]:
        names: list[str] = store.query("store_counts")["table_name"].to_list()
        ours = [name for name in names if name not in {"pipeline_state", "schema_migrations"}]
        frames = {name: connection.query(f"SELECT * FROM `{name}`", doing="looking") for name in ours}
        return {name: [repr(row) for row in frame.iter_rows()] for name, frame in frames.items()}

    return read


def test_no_table_holds_forgotten_data(store: Store, frame_of: MakeFrame, everything: Any) -> None:
    insert_episode(store, frame_of, "kept")
    convert(store)
    before = everything()
    insert_episode(store, frame_of, "erased")
    convert(store)
    assert len(everything()["episodes"]) == 2
    forgotten = forget(store, trace_id=TRACES["erased"])
    assert (forgotten.spans, forgotten.log_records, forgotten.captures, forgotten.dead_letters) == (2, 1, 0, 1)
    assert forgotten.episode_ids == (TRACES["erased"],)
    after = everything()
    assert not [row for rows in after.values() for row in rows if "erased" in row or TRACES["erased"] in row]
    assert {name: sorted(rows) for name, rows in after.items()} == {name: sorted(rows) for name, rows in before.items()}
    assert convert(store).episodes == 0
    assert forget(store, trace_id=TRACES["erased"]).spans == 0


def test_all_revisions_of_an_episode_are_forgotten(store: Store, frame_of: MakeFrame, everything: Any) -> None:
    """Replaced ones and pinned ones too."""
    for name in ("kept", "erased"):
        rows = [
            {"episode_id": TRACES[name], "revision": 1, "step": 0, "trace_id": TRACES[name], "state": f'["{name}"]'},
            {"episode_id": f"only {name}", "revision": 1, "step": 0, "trace_id": TRACES[name], "state": f'["{name}"]'},
        ]
        for number in (1, 2):
            insert_transitions(store, frame_of("transitions", [row | {"revision": number} for row in rows]))
        revision = frame_of("pinned_revisions", [{"episode_id": TRACES[name], "revision": 1}]).drop("pinned_at")
        sample = {"job_id": "j", "step": 1, "sample": len(name), "episode_id": TRACES[name], "loss": 0.5}
        store.insert("training_samples", frame_of("training_samples", [sample]).drop("recorded_at"))
        attempt = {"run_id": "r", "task_id": "t", "attempt": len(name), "episode_id": TRACES[name], "evidence": name}
        started = {"started_at": datetime(2026, 11, 1, tzinfo=UTC), "interrupted_episode_ids": [TRACES[name], "kept"]}
        store.insert("attempts", frame_of("attempts", [attempt | started]))
        call = {
            "canary_id": "c",
            "session": "s",
            "call_id": name,
            "trace_id": TRACES[name],
            "started_at": started["started_at"],
        }
        store.insert("canary_calls", frame_of("canary_calls", [call]).drop("ingested_at"))
        shadow = {"canary_id": "c", "response_id": name, "trace_id": TRACES[name], "answer": name}
        store.insert(
            "shadow_answers",
            frame_of("shadow_answers", [shadow | {"started_at": started["started_at"]}]).drop("ingested_at"),
        )
        store.insert("pinned_revisions", revision)
        store.insert("replaced_revisions", revision)
    before = everything()
    forgotten = forget(store, trace_id=TRACES["erased"])
    assert set(forgotten.episode_ids) == {TRACES["erased"], "only erased"}
    after = everything()
    assert not [row for rows in after.values() for row in rows if "erased" in row or TRACES["erased"] in row]
    tables = ("transition_rows", "step_summaries", "episode_messages", "pinned_revisions", "replaced_revisions")
    assert all(2 * len(after[table]) == len(before[table]) > 0 for table in tables)
    assert len(after["attempts"]) == len(before["attempts"]) == 2
    assert len(after["canary_calls"]) == len(after["shadow_answers"]) == 1


@pytest.mark.parametrize(
    ("named", "attribute"),
    [("session_id", "session.id"), pytest.param("user_id", "enduser.id", marks=pytest.mark.slow)],
)
def test_a_session_or_a_user_is_all_of_its_traces(
    store: Store, frame_of: MakeFrame, everything: Any, named: str, attribute: str
) -> None:
    insert_episode(store, frame_of, "kept", **{attribute: "somebody else"})
    insert_episode(store, frame_of, "erased", **{attribute: "her"})
    insert_episode(store, frame_of, "joined", **{attribute: "her"})
    stray = {"Timestamp": 10**18, "Body": "stray", "LogAttributes": {attribute: "her"}}
    store.insert("otel_logs", frame_of("otel_logs", [stray]).drop("IngestedAt"))
    convert(store)
    forgotten = forget(store, session_id="her") if named == "session_id" else forget(store, user_id="her")
    assert set(forgotten.trace_ids) == {TRACES["erased"], TRACES["joined"]}
    words = ("erased", "joined", "her'", "stray")
    assert not [row for rows in everything().values() for row in rows for word in words if word in row]
    assert len(everything()["otel_traces"]) == 2


def test_the_rest_of_an_episode_is_converted_again(store: Store, frame_of: MakeFrame, everything: Any) -> None:
    for name in ("joined", "erased"):
        insert_episode(store, frame_of, name, **{"spanloop.episode.id": "shared"})
    judged = [{"score_id": "whole", "name": "reward", "value": 1.0, "episode_key": "shared"}]
    store.insert("scores", frame_of("scores", judged).drop("ingested_at"))
    convert(store)
    forgotten = forget(store, trace_id=TRACES["erased"])
    assert forgotten.episode_ids == ("shared",)
    assert everything()["transition_rows"] == everything()["step_summaries"] == everything()["episode_messages"] == []
    assert convert(store).episodes == 1
    after = everything()
    assert len(after["transition_rows"]) == 1
    assert not [row for rows in after.values() for row in rows if "erased" in row]
    assert len([row for row in after["scores"] if "'shared'" in row]) == 1  # it still rates the other trace


def letter_of(body: bytes, content_type: str) -> dict[str, object]:
    raw = base64.b64encode(body).decode()
    return {
        "dead_letter_id": raw[:32], "reason": "malformed_body", "content_type": content_type, "raw_base64": raw,
        "received_at": time.time_ns(),
    }  # fmt: skip


def test_unreadable_bodies_are_searched(store: Store, frame_of: MakeFrame, everything: Any) -> None:
    request = ExportTraceServiceRequest()
    span = request.resource_spans.add().scope_spans.add().spans.add(trace_id=bytes.fromhex(TRACES["erased"]))
    pair = span.attributes.add()
    pair.key, pair.value.string_value = "session.id", "7"
    by_trace = (b"\xff" + request.SerializeToString()[:-4], f'{{"traceId": "{TRACES["erased"].upper()}"'.encode())
    by_session = (b"\xff" + request.SerializeToString()[-14:], b'{"key": "session.id", "value": {"stringValue": "7"}')
    others = (b'{"traceId": "77", "intValue": 7}', b"\xff 7 " + bytes.fromhex(TRACES["kept"]))
    letters = [letter_of(body, "application/json") for body in (*by_trace, *by_session, *others)]
    store.insert("dead_letters", frame_of("dead_letters", letters).drop("written_at"))
    assert forget(store, trace_id=TRACES["erased"]).dead_letters == len(by_trace)
    assert forget(store, session_id="7").dead_letters == len(by_session)
    assert len(everything()["dead_letters"]) == len(others)


def test_the_callback_runs_before_erasing(store: Store, frame_of: MakeFrame, everything: Any) -> None:
    insert_episode(store, frame_of, "erased", **{"spanloop.episode.id": "hers"})
    convert(store)
    before = everything()
    erased_ids: list[set[str]] = []

    def refuse(episode_ids: AbstractSet[str]) -> None:
        erased_ids.append(set(episode_ids))
        raise JobError("a job trains on it")

    with pytest.raises(JobError):
        forget(store, trace_id=TRACES["erased"], before=refuse)
    assert erased_ids == [{"hers", TRACES["erased"]}]
    assert everything() == before


def test_every_table_with_an_id_has_a_forget_statement(store: Store, connection: Connection) -> None:
    tables = connection.query(
        "SELECT DISTINCT table FROM system.columns WHERE database = currentDatabase() AND default_kind = '' AND "
        "table NOT IN (SELECT name FROM system.tables WHERE database = currentDatabase() AND engine LIKE '%View') AND "
        "lower(name) IN ('traceid', 'trace_id', 'trace_ids', 'episode_id', 'response_id', 'session_id')",
        doing="listing",
    )
    queries = {"otel_traces": "spans", "otel_logs": "logs"}
    # legacy_transitions is always empty: nothing writes it, and a database with rows there is refused.
    for table in set(tables["table"].to_list()) - {"legacy_transitions"}:
        with pytest.raises(Exception, match="wrong parameters"):
            store.execute(f"store_forget_{queries.get(table, table)}", nothing="")


def test_no_id_is_an_error(store: Store) -> None:
    with pytest.raises(ConfigurationError, match="No data to forget"):
        forget(store)


def test_a_forgotten_conversation_can_be_imported_again(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    path.write_text(
        '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], "reward": 1}'
    )
    first = import_paths(store, [path], on_reject=lambda _: None)
    trace = store.query("scores_list", trace_id="", response_id="", session_id="", episode_id="", limit=1).item(
        0, "trace_id"
    )
    assert forget(store, trace_id=str(trace)).spans == 2
    assert import_paths(store, [path], on_reject=lambda _: None).new == first.new


def test_responses_kept_elsewhere_are_named_before_their_rows_are_erased(store: Store, frame_of: MakeFrame) -> None:
    for name in ("erased", "kept"):
        insert_episode(store, frame_of, name)

    def refuse(response_ids: AbstractSet[str], trace_ids: AbstractSet[str]) -> None:
        assert (response_ids, trace_ids) == ({"response-erased"}, {TRACES["erased"]})
        raise JobError("the folder cannot be read")

    with pytest.raises(JobError):
        forget(store, trace_id=TRACES["erased"], before_responses=refuse)
    assert forget(store, trace_id=TRACES["erased"]).spans == 2
