"""``spanloop convert``: new spans, spans since a time, and episodes that do not fit into memory."""

from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from spanloop.cli.app import app
from spanloop.semconv.environment import CLICKHOUSE_URL_ENV, CONVERT_MEMORY_ENV
from spanloop.store import Store
from spanloop.store.client import Address, Connection

from ...converters.converters.converters_world import loop, trace_id
from ...converters.converters.pipeline_feed import Feed


@pytest.fixture
def feed(store: Store, address: Address, monkeypatch: pytest.MonkeyPatch) -> Iterator[Feed]:
    """A store with two episodes, an hour apart, that the command finds by its address."""
    login = f"{address.user}:{address.password}@{address.host}:{address.port}"
    monkeypatch.setenv(CLICKHOUSE_URL_ENV, f"{address.scheme}://{login}/{address.database}")
    connection = Connection(address)
    made = Feed(store, connection)
    for name in "ab":
        loop(made.world, name, trace=trace_id(name))
        made.send(minutes=60)
    yield made
    connection.close()


def convert(*arguments: str) -> dict[str, int]:
    """The table that the command prints."""
    result = CliRunner().invoke(app, ["convert", *arguments])
    assert result.exit_code == 0, result.output
    rows = (line.rsplit(maxsplit=1) for line in result.stdout.splitlines())
    return {row[0].strip(): int(row[1]) for row in rows if len(row) == 2 and row[1].isdecimal()}


def test_what_came_since_a_moment_is_converted_again(feed: Feed) -> None:
    assert convert()["episodes"] == 2
    assert convert()["episodes"] == 0
    assert convert("--since", "2026-11-20T11:30:00")["episodes"] == 1
    assert convert("--since", "2026-11-20T00:00:00")["episodes"] == 2
    assert convert("--full")["episodes"] == 2
    assert len(feed.episodes()) == 2


def test_why_token_rows_begin_and_what_did_not_fit_is_said(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    feed.world.capture([1, 2], [3], response_id="chatcmpl-1")
    feed.world.capture([1, 2, 4, 5], [6], response_id="chatcmpl-2")
    feed.send()
    counted = convert()
    assert (counted["trajectories"], counted["token row begins: retokenised"]) == (2, 1)
    monkeypatch.setenv(CONVERT_MEMORY_ENV, "1")
    loop(feed.world, "c", steps=200, trace=trace_id("c"))
    feed.send(minutes=60)
    counted = convert()
    assert counted["rejected: episode_too_large"] + counted["transitions"] >= 200
    assert counted["rejected: episode_too_large"] > 0
