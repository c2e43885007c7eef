"""Data sets pin revisions: a version keeps its episodes as they were, counts what it rejects, and forgets."""

import re

import pytest

from spanloop.administration.forget import forget
from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.tables.judged_values import Verdict
from spanloop.pipeline import run as convert
from spanloop.store import Store
from spanloop.store.client import Connection
from spanloop.store.data_sets import (
    ALREADY_IN,
    UNKNOWN,
    add_to_data_set,
    current_episodes,
    fetch_data_sets,
    fetch_members,
    find_data_set,
    remove_from_data_set,
)
from spanloop.store.judgements import Opinion, find_target, judge

from ..converters.converters_world import OPENING, text, trace_id
from ..converters.pipeline_feed import Feed

NAMES = ("a", "b", "c")
IDS = [trace_id(name) for name in NAMES]


@pytest.fixture
def feed(store: Store, connection: Connection) -> Feed:
    """A store with three converted episodes."""
    feed = Feed(store, connection)
    for name in NAMES:
        feed.world.call(OPENING, text("assistant", f"Sunny {name}."), trace=trace_id(name))
        feed.world.score(1.0, trace_id=trace_id(name))
    feed.send()
    convert(store)
    return feed


def add(store: Store, ids: list[str]) -> tuple[str, int, dict[str, int]]:
    addition = add_to_data_set(store, "shop", ids, created_by="ann", source="selection")
    return addition.data_set.reference, addition.added, dict(addition.rejected)


def members(store: Store, reference: str) -> dict[str, tuple[int, str]]:
    frame = fetch_members(store, find_data_set(store, reference))
    return {row[0]: row[1:] for row in frame.select("episode_id", "revision", "outcome").iter_rows()}


@pytest.mark.usefixtures("feed")
def test_versions_grow_and_count_every_chosen_episode(store: Store) -> None:
    assert add(store, IDS[:2]) == ("shop@v1", 2, {})
    assert add(store, [*IDS[:2], "nope", "nope"]) == ("shop@v1", 0, {ALREADY_IN: 2, UNKNOWN: 1})
    assert add(store, [*IDS[1:], "nope"]) == ("shop@v2", 1, {ALREADY_IN: 1, UNKNOWN: 1})
    assert sorted(members(store, "shop@v1")) == sorted(IDS[:2])
    assert sorted(members(store, "shop")) == sorted(IDS)
    fewer = remove_from_data_set(store, "shop", IDS[:1], created_by="ben")
    assert (fewer.reference, fewer.episodes, fewer.created_by) == ("shop@v3", 2, "ben")
    assert len(members(store, "shop@v2")) == 3
    assert [each.reference for each in fetch_data_sets(store)] == ["shop@v3", "shop@v2", "shop@v1"]
    assert find_data_set(store, "shop@v2").rejected == {ALREADY_IN: 1, UNKNOWN: 1}


@pytest.mark.usefixtures("feed")
def test_a_version_keeps_its_revisions_and_the_next_one_takes_the_newer(store: Store, feed: Feed) -> None:
    add(store, IDS)
    before = members(store, "shop@v1")
    judge(store, find_target(store, IDS[0]), Opinion(verdict=Verdict.BAD), judged_by="ann")
    convert(store)
    assert members(store, "shop@v1") == before
    pins = set(feed.sql("SELECT episode_id, revision FROM pinned_revisions FINAL").iter_rows())
    assert pins == {(episode_id, revision) for episode_id, (revision, _) in before.items()}
    assert add(store, IDS) == ("shop@v2", 1, {ALREADY_IN: 2})
    after = members(store, "shop@v2")
    assert after[IDS[0]][0] > before[IDS[0]][0]
    assert (before[IDS[0]][1], after[IDS[0]][1]) == ("success", "failure")
    assert find_data_set(store, "shop").stated_episodes == 3


@pytest.mark.usefixtures("feed")
def test_a_forgotten_episode_leaves_every_version(store: Store) -> None:
    add(store, IDS[:2])
    add(store, IDS[2:])
    forget(store, trace_id=IDS[0])
    assert [(each.episodes, each.forgotten) for each in fetch_data_sets(store)] == [(2, 1), (1, 1)]


@pytest.mark.usefixtures("feed")
def test_two_additions_at_once_make_two_versions(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second call begins before the first one's version exists."""
    from spanloop.store import data_sets  # noqa: PLC0415 - patched

    add(store, IDS[:1])
    waiting = True

    def interrupted(store: Store, reference: object) -> object:
        nonlocal waiting
        if waiting:
            waiting = False
            add(store, IDS[1:2])
        return fetch(store, reference)  # type: ignore[arg-type]

    fetch = data_sets.fetch_members
    monkeypatch.setattr(data_sets, "fetch_members", interrupted)
    assert add(store, IDS[2:])[0] == "shop@v3"
    assert sorted(members(store, "shop@v2")) == sorted(IDS[:2])
    assert sorted(members(store, "shop@v3")) == sorted(IDS)


@pytest.mark.usefixtures("feed")
def test_what_is_not_there_and_wrong_names_are_refused(store: Store) -> None:
    for name, ids, message in (("a b", IDS, "is no name"), ("new", ["x"], "No episode to make")):
        with pytest.raises(ConfigurationError, match=message):
            add_to_data_set(store, name, ids, created_by="ann", source="")
    with pytest.raises(ConfigurationError, match=re.escape("no data set 'shop'")):
        find_data_set(store, "shop")
    add(store, IDS[:1])
    with pytest.raises(ConfigurationError, match="has the versions v1"):
        find_data_set(store, "shop@v2")
    with pytest.raises(ConfigurationError, match="No episode of shop@v1 would be left"):
        remove_from_data_set(store, "shop", IDS[:1], created_by="ann")
    assert current_episodes(store, ["x"]).is_empty()
