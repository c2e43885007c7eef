"""A new column of ``episodes`` is a declaration, a migration and the function that computes it."""

import sys
from collections.abc import Iterator, Sequence

import pytest

from spanloop.converters.rows import Columns, Judged, episode_columns
from spanloop.foundation.errors import StoreError
from spanloop.foundation.tables import Column
from spanloop.foundation.tables.episodes import EPISODES
from spanloop.pipeline import run
from spanloop.store import Store
from spanloop.store.client import Address, Connection
from spanloop.store.migrate import migrate, migrations, parse

from ..converters.converters_world import loop, trace_id
from ..converters.pipeline_feed import Feed

AGENT_COUNT = Column("agent_count", "UInt32", "number of agents with a step")
MIGRATION = parse(
    f"{len(migrations()) + 1:04}_agent_count.sql", "ALTER TABLE episodes ADD COLUMN IF NOT EXISTS agent_count UInt32;\n"
)


@pytest.fixture
def feed(address: Address) -> Iterator[Feed]:
    """A store of its own: other tests must not meet the column."""
    with Store.open(address) as store:
        connection = Connection(address)
        yield Feed(store, connection)
        connection.close()


def with_agents(judged: Sequence[Judged]) -> Columns:
    counts = [len({step.agent_name for step in each.episode.steps}) for each in judged]
    return episode_columns(judged) | {"agent_count": counts}


def declare(monkeypatch: pytest.MonkeyPatch) -> None:
    assert EPISODES.schema, "computed here, so that monkeypatch restores it"
    assert EPISODES.required
    monkeypatch.setitem(vars(EPISODES), "columns", (*EPISODES.columns, AGENT_COUNT))
    monkeypatch.delitem(vars(EPISODES), "schema")
    monkeypatch.delitem(vars(EPISODES), "required")


def test_a_new_column_needs_no_other_change(feed: Feed, address: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    loop(feed.world, "a", trace=trace_id("a"))
    feed.send()
    run(feed.store)
    migrate(address, [*migrations(), MIGRATION])
    declare(monkeypatch)
    monkeypatch.setattr(sys.modules["spanloop.converters.tables"], "episode_columns", with_agents)
    loop(feed.world, "b", trace=trace_id("b"))
    feed.send()
    assert run(feed.store).episodes == 1
    assert {row["episode_id"]: row["agent_count"] for row in feed.episodes()} == {trace_id("a"): 0, trace_id("b"): 1}


def test_a_declared_column_that_nothing_computes_is_an_error(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    declare(monkeypatch)
    loop(feed.world, "a", trace=trace_id("a"))
    feed.send()
    with pytest.raises(StoreError, match=r"'episodes' has the wrong columns: unknown \[\], missing \['agent_count'\]"):
        run(feed.store)
