"""Lists over many replaced revisions: following the pages meets every current row once."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from spanloop.dashboard.queries import lists
from spanloop.dashboard.queries.lists import Cursor, ListPage
from spanloop.dashboard.view_models.filters import Filters
from spanloop.store import Store

from ...conftest import MakeFrame

EPISODES, REVISIONS, ROWS = 12, 9, 3
START = datetime(2026, 1, 2, tzinfo=UTC)


def fill(store: Store, frame_of: MakeFrame) -> None:
    """Store episodes that were converted again and again, each time with a failure."""
    for revision in range(1, REVISIONS + 1):
        for table, of in (("episodes", _episode), ("failures", _failure)):
            rows = [of(number, revision) for number in range(EPISODES)]
            store.insert(table, frame_of(table, rows))


def _episode(number: int, revision: int) -> dict[str, Any]:
    return {"episode_id": f"e{number}", "revision": revision, "started_at": START + timedelta(minutes=number)}


def _failure(number: int, revision: int) -> dict[str, Any]:
    return {
        "failure_id": f"f{number}-{revision}",
        "episode_id": f"e{number}",
        "revision": revision,
        "occurred_at": START + timedelta(minutes=number, seconds=revision),
    }


@pytest.mark.parametrize(
    ("fetch", "key", "ids"),
    [
        (lists.fetch_episodes, "episode_id", {f"e{number}" for number in range(EPISODES)}),
        (lists.fetch_failures, "failure_id", {f"f{number}-{REVISIONS}" for number in range(EPISODES)}),
    ],
)
def test_following_the_pages_meets_every_current_row_once(
    *,
    fetch: Callable[..., ListPage],
    key: str,
    ids: set[str],
    store: Store,
    frame_of: MakeFrame,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store.connection.command("SYSTEM STOP MERGES", doing="keeping every revision")
    try:
        fill(store, frame_of)
        monkeypatch.setattr(lists, "EXACT_ROWS", 0)
        shown: list[str] = []
        cursor: Cursor | None = None
        while True:
            page = fetch(store, Filters(), "", cursor, rows=ROWS)
            shown += page.rows[key].to_list()
            if not page.has_later:
                break
            cursor = Cursor.parse(page.cursor(-1))
    finally:
        store.connection.command("SYSTEM START MERGES", doing="merging again")
    assert len(shown) == EPISODES
    assert {*shown} == ids
