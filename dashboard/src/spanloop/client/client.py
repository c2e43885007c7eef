"""Ask the store: every answer is a frame, or one episode.

Invariant: a client reads. ClickHouse refuses its writes, ends its statements at their limits, and shows a client of
some services no row of the others.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal, Protocol, Self, get_args

import polars as pl

from spanloop.dashboard.queries import episodes, facets, failures, lists, outcomes, scores, sources
from spanloop.dashboard.queries.episodes import Episode
from spanloop.dashboard.queries.lists import Cursor, ListPage
from spanloop.dashboard.view_models.filters import BY_NAME, Filters
from spanloop.dashboard.view_models.version_statistics import with_intervals
from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.paths import DataDir
from spanloop.store import Store
from spanloop.store.data_sets import fetch_members, find_data_set
from spanloop.store.read_only import DEFAULT_LIMITS, ReadLimits, open_reader

from . import data_sets
from .conversation import SCHEMA as MESSAGES_SCHEMA
from .conversation import message_rows
from .filters import FilterInput, check_sort, read_filters

ListName = Literal["episodes", "steps", "failures", "traces"]
Grouping = Literal["policy", "agent", "service", "model", "task", "session", "class", "owner"]
MAX_GROUPS: Final = 1_000
"""Rows of a frame that groups episodes or scores."""
_PAGE_ROWS: Final = 1_000
"""Rows of one statement; a larger list is read by several, so that its keys fit into a request."""


class _Fetch(Protocol):
    def __call__(
        self, store: Store, filters: Filters, sort: str, cursor: Cursor | None, *, rows: int | None = None
    ) -> ListPage: ...


_LISTS: Final[dict[str, tuple[sources.Source, _Fetch]]] = {
    "episodes": (sources.EPISODES, lists.fetch_episodes),
    "steps": (sources.STEPS, lists.fetch_steps),
    "failures": (sources.FAILURES, lists.fetch_failures),
    "traces": (sources.TRACES, lists.fetch_traces),
}


class Client:
    """Reads the store of a data directory, or of ``SPANLOOP_CLICKHOUSE_URL``. A context manager; threads may share it.

    Filters are those of the pages: copy the address of a page, or its parameters, or give a mapping. Several values of
    a field are alternatives.

    Args:
        data_dir: The data directory. Default: ``SPANLOOP_DATA_DIR``, else ``~/.spanloop``.
        services: Names of services (``service.name``) whose rows are visible; none means all.
        limits: Limits of each statement.
        time_zone: Says when today and yesterday began.

    Raises:
        NotRunningError: No URL is set, and no embedded ClickHouse runs.
        ConfigurationError: The URL is invalid, or its user may not set limits.
        StoreError: ClickHouse is unreachable, or its schema is not this version's.
    """

    def __init__(
        self,
        data_dir: DataDir | Path | str | None = None,
        *,
        services: Sequence[str] = (),
        limits: ReadLimits = DEFAULT_LIMITS,
        time_zone: str = "UTC",
    ) -> None:
        self._data_dir = data_dir if isinstance(data_dir, DataDir) else DataDir(data_dir)
        self._services = tuple(services)
        self._zone = time_zone
        self._store = open_reader(self._data_dir, limits, self._services)

    def episodes(self, filters: FilterInput = "", *, sort: str = "", limit: int = 1_000) -> pl.DataFrame:
        """Return current episodes, the newest first.

        Args:
            filters: The filters.
            sort: A column of the page, such as ``reward``; ``-reward`` puts the largest first.
            limit: Most rows.

        Raises:
            ConfigurationError: A filter or the order is unknown.
            StoreError: ClickHouse is unreachable, or a limit was reached.
        """
        return self._rows("episodes", filters, sort, limit)

    def steps(self, filters: FilterInput = "", *, sort: str = "", limit: int = 1_000) -> pl.DataFrame:
        """Return the steps (transitions) of current episodes without their messages; as `episodes`."""
        return self._rows("steps", filters, sort, limit)

    def failures(self, filters: FilterInput = "", *, sort: str = "", limit: int = 1_000) -> pl.DataFrame:
        """Return the failures of current episodes; as `episodes`."""
        return self._rows("failures", filters, sort, limit)

    def traces(self, filters: FilterInput = "", *, sort: str = "", limit: int = 1_000) -> pl.DataFrame:
        """Return traces, also those that are not converted yet; as `episodes`."""
        return self._rows("traces", filters, sort, limit)

    def count(self, of: ListName, filters: FilterInput = "") -> int:
        """Return how many rows of a list match; it raises as `episodes`."""
        return lists.count_rows(self._store, _LISTS[of][0], self._filters(filters))

    def page(self, of: ListName, filters: FilterInput = "", *, sort: str = "", rows: int = 100) -> ListPage:
        """Return one page of a list with its total and cursors; ``after`` and ``before`` among the filters continue."""
        source, fetch = _LISTS[of]
        selection = read_filters(filters, zone=self._zone)
        order = check_sort(source, sort or selection.sort)
        return fetch(self._store, selection.filters, order, selection.cursor, rows=rows)

    def failure_groups(self, filters: FilterInput = "") -> pl.DataFrame:
        """Return failures grouped by fingerprint, the most frequent first, up to 200; it raises as `episodes`."""
        return failures.fetch_groups(self._store, self._filters(filters))

    def tools(self, filters: FilterInput = "") -> pl.DataFrame:
        """Return up to 100 tools with calls and failures, those that fail most first; it raises as `episodes`."""
        return failures.fetch_tools(self._store, self._filters(filters))

    def outcomes(self, by: Grouping = "policy", filters: FilterInput = "") -> pl.DataFrame:
        """Return success and reward with 95 % intervals for each version, agent, service, model, task or session.

        ``success``, ``success_low`` and ``success_high`` are over episodes with a known outcome (Wilson); ``reward``,
        ``reward_low`` and ``reward_high`` are the mean's. Up to 1,000 rows, those with most episodes first. It raises
        as `episodes`.
        """
        if by not in get_args(Grouping):
            raise ConfigurationError(
                f"Episodes cannot be grouped by {by!r}.", next_step=f"Group by one of {', '.join(get_args(Grouping))}."
            )
        frame = outcomes.fetch_outcomes(self._store, self._filters(filters), by, max_rows=MAX_GROUPS)
        return with_intervals(frame)

    def scores(
        self, filters: FilterInput = "", *, names: Sequence[str] = (), episode_id: str = "", limit: int = 1_000
    ) -> pl.DataFrame:
        """Return scores, the newest first.

        Args:
            filters: The range of time is that of the scores, the others are filters of their episodes.
            names: Names of scores; none means all. Marks are the scores named ``spanloop.mark``.
            episode_id: Only the scores of this episode.
            limit: Most rows.

        Raises:
            ConfigurationError: A filter is unknown.
            StoreError: ClickHouse is unreachable, or a limit was reached.
        """
        _check_limit(limit)
        return scores.fetch_scores(
            self._store, self._filters(filters), names=names, episode_id=episode_id, max_rows=limit
        )

    def score_summary(self, filters: FilterInput = "") -> pl.DataFrame:
        """Return number, mean, lowest and highest value of the scores of each name; it raises as `episodes`."""
        return scores.fetch_score_summary(self._store, self._filters(filters), max_rows=MAX_GROUPS)

    def values(self, field: str, filters: FilterInput = "") -> pl.DataFrame:
        """Return the values of a filter with their counts in the range of time, up to 200, the most frequent first.

        Of many episodes the newest 100,000 are read. It raises as `episodes`.
        """
        if field not in BY_NAME or BY_NAME[field].kind not in {"choice", "attribute"}:
            raise ConfigurationError(
                f"There are no values of {field!r}.",
                next_step=f"Use one of {', '.join(name for name, each in BY_NAME.items() if each.kind == 'choice')}.",
            )
        return facets.fetch_values(self._store, self._filters(filters), field)

    def episode(self, episode_id: str) -> Episode | None:
        """Return one episode without its messages; None when the id is unknown. StoreError: as `episodes`."""
        return episodes.fetch_episode(self._store, episode_id)

    def episode_failures(self, episode_id: str) -> pl.DataFrame:
        """Return the failures of one episode with their evidence; ConfigurationError: the id is unknown."""
        return episodes.fetch_episode_failures(self._store, self._known_episode(episode_id))

    def messages(self, episode_id: str, *, first_step: int = 0, last_step: int | None = None) -> pl.DataFrame:
        """Return what an episode's agent read and wrote, each message once.

        Args:
            episode_id: The episode.
            first_step: The first step whose messages are returned: what its prompt adds to that of the step before.
            last_step: The last one; None is the episode's last.

        Returns:
            ``step``, ``agent``, ``role``, ``kind``, ``name``, ``content`` and ``error_type``, in order.

        Raises:
            ConfigurationError: The id is unknown.
            StoreError: ClickHouse is unreachable, or a limit was reached.
        """
        episode = self._known_episode(episode_id)
        last = max(0, episode.step_count - 1) if last_step is None else last_step
        records = episodes.fetch_step_records(self._store, episode, max(0, first_step - 1), last)
        rows = [row for row in message_rows(records) if row.step >= first_step]
        return pl.DataFrame(rows, schema=MESSAGES_SCHEMA, orient="row")

    def data_sets(self) -> pl.DataFrame:
        """Return the versions of the data sets that people collected, the newest first.

        Raises:
            ConfigurationError: The client is one of some services, and a data set can hold episodes of others.
            StoreError: ClickHouse is unreachable, or a limit was reached.
        """
        self._check_sees_data_sets()
        return data_sets.collected(self._store)

    def data_set_episodes(self, data_set: str) -> pl.DataFrame:
        """Return the episodes of a data set as they were when they were added.

        Args:
            data_set: ``name@v2``, or ``name`` for the newest version.

        Returns:
            ``episode_id``, ``revision`` and the columns of the table ``data_set_episodes``.

        Raises:
            ConfigurationError: It does not exist, or as `data_sets`.
            StoreError: As `data_sets`.
        """
        self._check_sees_data_sets()
        return fetch_members(self._store, find_data_set(self._store, data_set))

    def training_data(self) -> pl.DataFrame:
        """Return what jobs trained on, with counts of rows and rejections, the newest first.

        Raises:
            ConfigurationError: As `data_sets`.
        """
        self._check_sees_data_sets()
        return data_sets.trained(self._data_dir.jobs)

    def training_episodes(self, job: str) -> pl.DataFrame:
        """Return ``episode_id``, ``revision`` and ``is_held_out`` of the episodes that a job trained on.

        Raises:
            JobError: There is no such job with data.
            ConfigurationError: As `data_sets`.
        """
        self._check_sees_data_sets()
        return data_sets.pinned_episodes(self._data_dir.jobs, job)

    def close(self) -> None:
        """Close the connections."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _check_sees_data_sets(self) -> None:
        if self._services:
            raise ConfigurationError(
                f"A client of the services {', '.join(self._services)} sees no data set.",
                next_step="A data set can hold episodes of other services: use a client, or a key, without services.",
            )

    def _known_episode(self, episode_id: str) -> Episode:
        episode = self.episode(episode_id)
        if episode is None:
            raise ConfigurationError(f"There is no episode {episode_id!r}.", next_step="List some with episodes().")
        return episode

    def _filters(self, stated: FilterInput) -> Filters:
        return read_filters(stated, zone=self._zone).filters

    def _rows(self, of: ListName, stated: FilterInput, sort: str, limit: int) -> pl.DataFrame:
        _check_limit(limit)
        source, fetch = _LISTS[of]
        filters, stated_sort, cursor = read_filters(stated, zone=self._zone)
        order = check_sort(source, sort or stated_sort)
        frames: list[pl.DataFrame] = []
        rows = 0
        while True:
            page = fetch(self._store, filters, order, cursor, rows=min(_PAGE_ROWS, limit - rows))
            frames.append(page.rows)
            rows += page.rows.height
            if rows >= limit or not page.has_later or (cursor and cursor.is_before):
                return pl.concat(frames).drop("sort_value", "sort_id")
            cursor = Cursor.parse(page.cursor(-1))


def _check_limit(limit: int) -> None:
    if limit < 1:
        raise ConfigurationError(f"A limit of {limit} rows selects nothing; expected 1 or more.")
