"""Write converted episodes as new revisions.

Invariant: messages are written before the rows that refer to them, and an episode's row after all rows of its revision,
so a reader of current revisions never sees part of one. Writing the same conversion again writes nothing, or the same
rows under the same keys. A revision has one content: when spans or outcome change without a newer span (another batch,
a withdrawn score, another converter version), the revision is the stored one plus one.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, cast

import polars as pl

from spanloop.converters import CONVERTER_VERSION, Converted
from spanloop.foundation.tables.episodes import EPISODES, REPLACED_REVISIONS
from spanloop.store import Store

from .affected_traces import AffectedTraces, stored_episodes
from .load import Loaded
from .report import Report, count_reasons
from .stored_transitions import Inserts, insert_transitions

_ROW_TABLES: Final = ("transitions", "trajectories", "failures")
_REVISIONS: Final = REPLACED_REVISIONS.required


class _Content(NamedTuple):
    """Inputs and outcome of a revision; equal contents need no new revision."""

    converter_version: str
    span_count: int
    trace_ids: tuple[str, ...]
    outcome: str
    reward: float | None
    marks: tuple[str, ...]
    judgements: tuple[str, ...]


_COMPARED: Final = _Content._fields


class _Stored(NamedTuple):
    revision: int
    is_deleted: bool
    content: _Content


class _Plan(NamedTuple):
    revisions: pl.DataFrame
    """Columns episode_id, revision: the episodes to write and their new revisions."""
    tombstones: pl.DataFrame
    """Rows of ``episodes`` with ``is_deleted`` = 1."""
    replaced: pl.DataFrame
    """Columns episode_id, revision: the stored revisions that these replace."""


def write(store: Store, inserts: Inserts, converted: Converted, loaded: Loaded, *, full: bool) -> Report:
    """Store the episodes of ``converted`` that differ from the stored ones.

    Args:
        store: The store.
        inserts: Inserts into it.
        converted: The episodes with a touched trace.
        loaded: The rows that they were converted from; rejections of the batch's traces are reported.
        full: Write unchanged episodes too, under their stored revision.
    """
    plan = _plan(store, converted.episodes, loaded.affected.stored, _recorded_elsewhere(converted, loaded), full=full)
    written: dict[str, pl.DataFrame] = {}
    for table in _ROW_TABLES:
        rows = cast("pl.DataFrame", getattr(converted, table))
        written[table] = _renumber(rows, plan.revisions)
        if table == "transitions":
            insert_transitions(inserts, _renumber(converted.messages, plan.revisions), written[table])
        else:
            inserts.insert(table, written[table])
    inserts.insert("replaced_revisions", plan.replaced)
    episodes = _renumber(converted.episodes, plan.revisions).with_columns(
        pl.lit(0, dtype=EPISODES.schema["is_deleted"]).alias("is_deleted")
    )
    inserts.insert("episodes", pl.concat([episodes, plan.tombstones]))
    return _report(written, plan, converted, loaded.affected)


def _renumber(rows: pl.DataFrame, revisions: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of the episodes to write, with their final revisions, in the columns' order."""
    return (
        rows.drop("revision").join(revisions, on="episode_id", how="inner", maintain_order="left").select(rows.columns)
    )


def _recorded_elsewhere(converted: Converted, loaded: Loaded) -> frozenset[str]:
    """Return traces without an episode, because other traces record their model calls too."""
    reasons = converted.rejected.filter(pl.col("reason").is_in(_NOT_OF_AN_EPISODE)).group_by("trace_id")
    rejections = reasons.agg(
        pl.len().alias("rejected"), pl.col("reason").eq("duplicate_model_call").any().alias("is_duplicate")
    )
    if not rejections["is_duplicate"].any() or loaded.affected.rejected:
        return frozenset()
    spans = loaded.spans.group_by("TraceId").len("spans")
    complete = rejections.filter("is_duplicate").join(
        spans, left_on=["trace_id", "rejected"], right_on=["TraceId", "spans"]
    )
    return frozenset(complete["trace_id"].to_list())


_NOT_OF_AN_EPISODE: Final = ("no_model_call", "duplicate_model_call", "duplicate_span", "unsupported_dialect")


def _plan(
    store: Store,
    converted_episodes: pl.DataFrame,
    by_trace: pl.DataFrame,
    recorded_elsewhere: frozenset[str],
    *,
    full: bool,
) -> _Plan:
    by_id = stored_episodes(store, episode_ids=converted_episodes["episode_id"].to_list())
    stored = _read_stored(pl.concat([by_trace, by_id]).unique("episode_id", maintain_order=True))
    revisions: dict[str, int] = {}
    for row in converted_episodes.select("episode_id", "revision", *_COMPARED).iter_rows(named=True):
        episode_id = row["episode_id"]
        revision = _revision(int(row["revision"]), _content(row), stored.get(str(episode_id)), full=full)
        if revision is not None:
            revisions[str(episode_id)] = revision
    tombstones = _tombstones(converted_episodes, stored, recorded_elsewhere)
    replaced = [
        (episode_id, stored[episode_id].revision)
        for episode_id in (*revisions, *tombstones["episode_id"])
        if episode_id in stored and stored[episode_id].revision != revisions.get(episode_id)
    ]
    return _Plan(
        pl.DataFrame(list(revisions.items()), schema=_REVISIONS, orient="row"),
        tombstones,
        pl.DataFrame(replaced, schema=_REVISIONS, orient="row"),
    )


def _revision(data_revision: int, content: _Content, stored: _Stored | None, *, full: bool) -> int | None:
    """Return the revision to write an episode under; None when the stored one is equal."""
    if stored is None or data_revision > stored.revision:
        return data_revision
    if not stored.is_deleted and content == stored.content:
        return stored.revision if full else None
    return stored.revision + 1


def _read_stored(frame: pl.DataFrame) -> dict[str, _Stored]:
    return {
        row["episode_id"]: _Stored(
            revision=row["revision"],
            is_deleted=bool(row["is_deleted"]),
            content=_content(row),
        )
        for row in frame.iter_rows(named=True)
    }


def _content(row: Mapping[str, Any]) -> _Content:
    """Return what two revisions are compared by; ``row`` has columns of ``episodes``."""
    content = _Content(**{name: row[name] for name in _COMPARED})
    trace_ids, marks, judgements = (tuple(each) for each in (content.trace_ids, content.marks, content.judgements))
    return content._replace(trace_ids=trace_ids, marks=marks, judgements=judgements)


def _tombstones(
    converted_episodes: pl.DataFrame, stored: dict[str, _Stored], recorded_elsewhere: frozenset[str]
) -> pl.DataFrame:
    """Return tombstones of stored episodes whose traces now belong to other episodes or are recorded elsewhere."""
    present = set(converted_episodes["episode_id"].to_list())
    revision_by_trace = {
        str(trace_id): int(revision)
        for revision, trace_ids in converted_episodes.select("revision", "trace_ids").iter_rows()
        for trace_id in trace_ids
    }
    rows: list[dict[str, object]] = []
    for episode_id, stored_episode in sorted(stored.items()):
        successors = [
            revision_by_trace[trace_id]
            for trace_id in stored_episode.content.trace_ids
            if trace_id in revision_by_trace
        ]
        is_gone = bool(successors) or recorded_elsewhere.issuperset(stored_episode.content.trace_ids)
        if episode_id not in present and not stored_episode.is_deleted and is_gone:
            revision = max([stored_episode.revision + 1, *successors])
            rows.append(
                {
                    "episode_id": episode_id,
                    "revision": revision,
                    "converter_version": CONVERTER_VERSION,
                    "is_deleted": 1,
                }
            )
    return pl.DataFrame(rows, schema=EPISODES.required | {"is_deleted": EPISODES.schema["is_deleted"]})


def _report(written: dict[str, pl.DataFrame], plan: _Plan, converted: Converted, affected: AffectedTraces) -> Report:
    reasons = written["transitions"]["untrainable_reason"]
    # A score without a trace and without an episode may belong to an episode outside this batch.
    names_no_trace = (pl.col("trace_id") == "") & (pl.col("reason") != "score_without_episode")
    is_of_batch = pl.col("trace_id").is_in(sorted(affected.batch.trace_ids))
    converted_episodes = converted.rejected.filter(is_of_batch | names_no_trace)
    return Report(
        episodes=plan.revisions.height,
        tombstones=plan.tombstones.height,
        transitions=written["transitions"].height,
        trajectories=written["trajectories"].height,
        row_starts=count_reasons(written["trajectories"]["row_start"]),
        failures=written["failures"].height,
        trainable=int((reasons == "").sum()),
        untrainable=count_reasons(reasons),
        rejected={**count_reasons(converted_episodes["reason"]), **affected.rejected},
        open_joins=converted.open_joins.filter(is_of_batch)["trace_id"].n_unique(),
    )
