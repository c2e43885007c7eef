"""A copy holds every row, is made again without harm, and changes nothing that is there."""
# pyright: reportPrivateUsage=false

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import polars as pl
import pytest

from spanloop.administration import copying
from spanloop.administration.copying import CopiedTable, check_copy, copy_store, copy_while_written
from spanloop.foundation.errors import ConfigurationError, StoreError
from spanloop.store import Store
from spanloop.store.client import Address, Connection

from ...conftest import Rows
from ...databases import ReusedDatabases
from ...stored_states import insert_transitions

DAY_NS = 86_400 * 10**9
DUMP = "SELECT cityHash64(tuple(*)) AS row_hash FROM {table:Identifier} ORDER BY row_hash SETTINGS final = 1"


def nothing(*_: object) -> None: ...


@pytest.fixture
def target(clickhouse: Address, databases: ReusedDatabases) -> Iterator[Store]:
    """Another database: to a copy what another server is."""
    name = databases.take()
    with Store(replace(clickhouse, database=name)) as opened:
        yield opened
    databases.give_back(name)


def insert(store: Store, table: str, rows: Rows) -> None:
    for row in rows:
        frame = pl.DataFrame([row], schema={name: kind for name, kind in store.schema(table).items() if name in row})
        rest = [pl.lit(None, kind).alias(name) for name, kind in store.schema(table).items() if name not in row]
        if table == "transitions":
            insert_transitions(store, frame.with_columns(rest))
        else:
            store.insert(table, frame.with_columns(rest))


def span(number: int, day: int, **attributes: str) -> Mapping[str, object]:
    return {
        "TraceId": f"{number % 3:032x}", "SpanId": f"{number:016x}", "Timestamp": day * DAY_NS, "SpanName": "chat",
        "SpanAttributes": attributes, "Events.Timestamp": [day * DAY_NS], "Events.Name": ["é"],
        "Events.Attributes": [{"k": "v"}],
    }  # fmt: skip


def fill(store: Store) -> None:
    insert(store, "otel_traces", [span(n, 20_000 + n % 2, n=str(n)) for n in range(6)])
    insert(
        store,
        "otel_logs",
        [
            {
                "Timestamp": 20_000 * DAY_NS, "TraceId": f"{1:032x}", "EventName": "gen_ai.evaluation.result",
                "LogAttributes": {"gen_ai.evaluation.name": "reward", "gen_ai.evaluation.score.value": "1"},
            }
        ],
    )  # fmt: skip
    insert(store, "scores", [{"score_id": "a", "name": "reward", "value": value} for value in (0.0, 1.0)])
    insert(store, "episodes", [{"episode_id": "e", "revision": n, "reward": None, "trace_ids": ["1"]} for n in (1, 2)])
    step = {"transition_id": "e/0", "episode_id": "e", "revision": 2, "step": 0, "state": '["a","b"]', "agent_name": ""}
    insert(store, "transitions", [step | {"logprobs": [0.5, -1.0]}])


def dump(store: Store, address: Address) -> dict[str, list[int]]:
    """All rows of all tables, those that newer ones replace left out."""
    connection = Connection(replace(address, database=store.database))
    try:
        return {
            name: connection.query(DUMP, doing="dumping", parameters={"table": name})["row_hash"].to_list()
            for name in store.query("store_copy_tables")["table_name"]
            if name != "trace_summaries"
        }
    finally:
        connection.close()


def sent(copied: list[CopiedTable]) -> dict[str, int]:
    return {table.name: table.sent for table in copied if table.sent}


def test_all_rows_are_copied_and_a_second_copy_sends_nothing(store: Store, target: Store, address: Address) -> None:
    fill(store)
    copied = copy_store(store, target, on_progress=nothing)
    check_copy(copied, target)
    assert {table.name: table.source_rows for table in copied}["otel_traces"] == 6
    here = dump(store, address)
    assert dump(target, address) == here
    assert here["scores"]
    assert (len(here["episode_messages"]), len(here["transition_rows"])) == (2, 1)
    summed = [each.query("store_copy_trace_summaries").row(0) for each in (store, target)]
    assert summed[0] == summed[1]
    assert sent(copy_store(store, target, on_progress=nothing)) == {}
    assert dump(target, address) == here


def test_a_row_that_is_replaced_during_a_copy_is_copied_again(
    store: Store, target: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    insert(store, "pipeline_state", [{"name": "turn", "value": "first"}])
    send = copying._send
    renewals = ["second"]

    def renew_and_send(*arguments: Any) -> Iterator[tuple[int, int]]:
        if renewals and "pipeline_state" in arguments:
            insert(store, "pipeline_state", [{"name": "turn", "value": renewals.pop()}])
            store.connection.command("OPTIMIZE TABLE pipeline_state FINAL", doing="merging")
        return send(*arguments)

    monkeypatch.setattr(copying, "_send", renew_and_send)
    copy_while_written(store, target, on_progress=nothing)
    assert target.query("pipeline_state", name="turn")["value"].to_list() == ["second"]


def test_a_later_copy_sends_new_rows_and_keeps_the_targets_own(store: Store, target: Store, address: Address) -> None:
    fill(store)
    copy_store(store, target, on_progress=nothing)
    insert(store, "otel_traces", [span(7, 20_000)])
    insert(store, "scores", [{"score_id": "a", "name": "reward", "value": 2.0}])
    theirs = span(8, 20_000)
    insert(target, "otel_traces", [theirs])
    copied = copy_store(store, target, on_progress=nothing)
    check_copy(copied, target)
    assert sent(copied)["otel_traces"] == 1
    assert sent(copied)["scores"] == 1
    here, there = dump(store, address), dump(target, address)
    assert set(there["otel_traces"]) > set(here["otel_traces"])
    assert len(there["otel_traces"]) == 8
    assert there["scores"] == here["scores"]


@pytest.mark.slow
def test_an_interrupted_copy_continues(store: Store, target: Store, address: Address) -> None:
    fill(store)
    blocks = 0

    class BrokenOffError(Exception):
        pass

    def break_off(_table: str, done: int, _total: int) -> None:
        nonlocal blocks
        blocks += bool(done)
        if blocks == 8:
            raise BrokenOffError

    with pytest.raises(BrokenOffError):
        copy_store(store, target, on_progress=break_off)
    copied = copy_store(store, target, on_progress=nothing)
    check_copy(copied, target)
    assert sum(sent(copied).values()) < sum(table.source_rows for table in copied)
    assert dump(target, address) == dump(store, address)


def test_a_store_is_not_copied_onto_itself(store: Store, address: Address) -> None:
    with Store.open(address) as same, pytest.raises(ConfigurationError, match="is the source of the copy"):
        copy_store(store, same, on_progress=nothing)


def test_missing_rows_are_reported(target: Store) -> None:
    with pytest.raises(StoreError, match="otel_traces has 1 of 2 rows") as caught:
        check_copy([CopiedTable("otel_traces", 1, 2, 1), CopiedTable("scores", 1, 1, 2)], target)
    assert "Run the copy again" in caught.value.next_step


@pytest.mark.parametrize("url", ["http://me:pa/ss@h/db", "http://h/db?password=pass", "x:pass"])
def test_an_error_does_not_show_the_password_of_an_invalid_url(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Address.parse(url)
    assert "ss" not in str(caught.value).replace("password", "")
