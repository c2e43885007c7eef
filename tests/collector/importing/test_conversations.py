"""Conversations: importing line becomes one episode; a bad line is rejected with its place and reason."""

import gzip
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from spanloop.importing import Reject, import_paths
from spanloop.pipeline import run as convert
from spanloop.store import Store
from spanloop.store.client import Address, Connection

from .conftest import Import, Write, conversation

TAU = Path(__file__).parents[3].parent / "shared" / "data" / "tau_airline" / "trajectories.jsonl.gz"
TABLES = ("otel_traces", "scores", "episodes", "transitions", "failures")


def rows(address: Address, table: str, order: str = "tuple()") -> list[dict[str, Any]]:
    connection = Connection(address)
    try:
        return connection.query(f"SELECT * FROM {table} ORDER BY {order}", doing="looking").to_dicts()
    finally:
        connection.close()


def test_a_line_becomes_an_episode_with_its_reward(store: Store, address: Address, write: Write, run: Import) -> None:
    report = run(write([conversation()])).report
    assert (report.new["conversations"], report.new["scores"], report.new["spans of conversations"]) == (1, 1, 4)
    convert(store)
    (episode,) = rows(address, "episodes")
    assert (episode["task_id"], episode["agent_name"], episode["reward"], episode["step_count"]) == (
        "7",
        "guide",
        1.0,
        2,
    )
    assert (episode["tool_call_count"], episode["tool_error_count"]) == (1, 0)
    first, last = rows(address, "transitions", "step")
    assert first["untrainable_reason"] == last["untrainable_reason"] == ""
    assert [message["role"] for message in json.loads(first["state"])] == ["system", "user"]
    (call,) = json.loads(first["action"])["parts"]
    assert (call["type"], call["id"], call["name"]) == ("tool_call", "c1", "weather")
    # Canonical arguments are the object; as text they are the same object.
    arguments = call["arguments"]
    assert (json.loads(arguments) if isinstance(arguments, str) else arguments) == {"city": "Paris"}
    assert json.loads(first["tools"])[0]["name"] == "weather"
    assert json.loads(first["tool_results"])[0]["content"] == "57F"
    assert json.loads(last["state"])[-1]["parts"][0]["response"] == "57F"
    assert json.loads(last["action"])["parts"] == [{"type": "text", "content": "57F."}]
    assert (first["finish_reason"], last["finish_reason"]) == ("tool_call", "stop")


def test_importing_twice_changes_nothing(store: Store, address: Address, write: Write, run: Import) -> None:
    path = write([conversation(), conversation(task_id=8)])
    first = run(path).report
    convert(store)
    before = {table: sorted(map(repr, rows(address, table))) for table in TABLES}
    path.rename(path.with_name("moved.jsonl"))
    second = run(path.with_name("moved.jsonl")).report
    convert(store)
    assert {table: sorted(map(repr, rows(address, table))) for table in TABLES} == before
    assert sum(second.new.values()) == 0
    assert second.known == first.new


def test_the_same_line_again_is_another_attempt(store: Store, address: Address, write: Write, run: Import) -> None:
    assert run(write([conversation()] * 3)).report.new["conversations"] == 3
    convert(store)
    assert len({row["episode_id"] for row in rows(address, "episodes")}) == 3
    assert run(write([conversation()] * 4)).report.new["conversations"] == 1


def test_another_reward_is_the_same_episode(store: Store, address: Address, write: Write, run: Import) -> None:
    run(write([conversation()]))
    convert(store)
    again = run(write([conversation(reward=0.25)])).report
    assert (sum(again.new.values()), again.new["scores"]) == (1, 1)
    convert(store)
    newest = max(rows(address, "episodes"), key=lambda row: row["revision"])
    assert newest["reward"] == 0.25
    assert len({row["episode_id"] for row in rows(address, "episodes")}) == 1


def test_a_line_without_optional_fields_becomes_an_episode(
    store: Store, address: Address, write: Write, run: Import
) -> None:
    line = {"traj": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]}
    report = run(write([line])).report
    assert (report.accepted, report.new["scores"]) == (1, 0)
    convert(store)
    (episode,) = rows(address, "episodes")
    assert (episode["reward"], episode["task_id"], episode["step_count"]) == (None, "", 1)


def test_unusual_but_valid_messages_are_accepted(store: Store, address: Address, write: Write, run: Import) -> None:
    messages = [
        {"role": "developer", "content": [{"type": "text", "text": "a"}, "b"]},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]},
        {"role": "assistant", "content": "", "function_call": {"name": "f", "arguments": "not json"}},
        {"role": "function", "name": "f", "content": None},
        {"role": "assistant", "name": "second", "content": "half a pair: \ud83d"},
    ]
    assert run(write([conversation(messages=messages, tools=[{"name": "f"}])])).report.accepted == 1
    convert(store)
    first, last = rows(address, "transitions", "step")
    state = json.loads(first["state"])
    assert state[0]["role"] == "system"
    assert state[1]["parts"][0]["type"] == "image_url"
    assert json.loads(first["action"])["parts"][0]["arguments"] == "not json"
    assert last["agent_name"] == "second"
    assert json.loads(last["action"])["parts"][0]["content"] == "half a pair: \ufffd"


@pytest.mark.parametrize(
    ("line", "reason", "item"),
    [
        (conversation(messages=[]), "no_model_call", "messages"),
        (conversation(messages=None), "wrong_type", "messages"),
        (conversation(messages=["x"]), "bad_message", "messages[0]"),
        (conversation(messages=[{"role": "robot", "content": ""}]), "bad_message", "messages[0].role"),
        (conversation(messages=[{"role": "assistant", "content": 5}]), "wrong_type", "messages[0].content"),
        (
            conversation(messages=[{"role": "assistant", "tool_calls": [{"id": "c"}]}]),
            "bad_message",
            "messages[0].tool_calls[0].function.name",
        ),
        (conversation(tools={"a": 1}), "wrong_type", "tools"),
        (conversation(tools=[{"type": "function"}]), "bad_tools", "tools[0]"),
        (conversation(reward="high"), "bad_reward", "reward"),
        (conversation(reward=float("nan")), "bad_reward", "reward"),
        (conversation(reward=10**400), "bad_reward", "reward"),
        (conversation(reward=1e308), "bad_reward", "reward"),
        (conversation(reward=None, info={"reward": -3e38}), "bad_reward", "reward"),
        (conversation(task_id=[1]), "wrong_type", "task_id"),
        (conversation(timestamp="yesterday"), "bad_time", "timestamp"),
        (conversation(timestamp=2**32), "timestamp_out_of_range", ""),
        ({"history": []}, "unknown_format", ""),
        ([1], "unknown_format", "[0]"),
        ("{broken", "not_json", ""),
    ],
)
def test_a_bad_line_is_located_and_rejected_alone(
    write: Write, run: Import, line: object, reason: str, item: str
) -> None:
    path = write([conversation(), line, conversation(task_id=2)])
    report, (reject,) = run(path)
    assert report.new["conversations"] == 2
    assert (reject.place.file, reject.place.line, reject.place.item, reject.reason) == (str(path), 2, item, reason)
    assert reject.got
    assert reject.expected
    assert str(reject).startswith(f"{path}:2")


def test_concurrent_imports_store_each_span_once(store: Store, address: Address, write: Write) -> None:
    path = write([conversation(task_id=number) for number in range(50)])
    rejects: list[Reject] = []
    with ThreadPoolExecutor(4) as pool:
        running = [pool.submit(import_paths, store, [path], on_reject=rejects.append) for _ in range(4)]
        assert all(importing.result().accepted == 50 for importing in running)
    assert len(rows(address, "otel_traces")) == 50 * 4


def test_deleted_rows_can_be_imported_again(address: Address, write: Write, run: Import) -> None:
    path = write([conversation()])
    run(path)
    connection = Connection(address)
    connection.command("ALTER TABLE otel_traces DELETE WHERE 1", doing="deleting", settings={"mutations_sync": "1"})
    connection.close()
    assert run(path).report.new["spans of conversations"] == 4
    assert len(rows(address, "otel_traces")) == 4


def test_real_trajectories_become_their_episodes(store: Store, address: Address, run: Import) -> None:
    if not TAU.exists():
        pytest.skip(f"no data at {TAU}")
    report, rejects = run(TAU)
    assert not rejects
    assert (report.new["conversations"], report.new["scores"]) == (120, 120)
    lines = [json.loads(line) for line in gzip.decompress(TAU.read_bytes()).splitlines()]
    result = convert(store)
    assert result.episodes == 120
    assert result.transitions == sum(message["role"] == "assistant" for line in lines for message in line["traj"])
    tasks_and_rewards = sorted((row["task_id"], row["reward"]) for row in rows(address, "episodes"))
    assert tasks_and_rewards == sorted((str(line["task_id"]), line["reward"]) for line in lines)
    assert len({row["group_id"] for row in rows(address, "episodes")}) == 30
    assert run(TAU).report.new.total() == 0
