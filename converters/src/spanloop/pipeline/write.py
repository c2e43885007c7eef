"""From converted rows to new revisions in the store.

Invariant: an episode's row is written after all rows of its revision, so a reader of current revisions never sees
half of one. Writing the same conversion again writes nothing, or the same rows under the same keys. A revision never
stands for two contents: where the spans or the outcome of a stored revision changed without a newer member (batches,
a score that no longer counts, another converter version), the number goes one up.
"""

from typing import Final, NamedTuple, cast

import polars as pl

from spanloop.converters import CONVERTER_VERSION, Converted
from spanloop.converters.frames import EPISODES
from spanloop.store import Store

from .affected_traces import Closure, stored_episodes
from .load import Loaded
from .report import Report, count_reasons

_ROW_TABLES: Final = ("transitions", "trajectories", "failures")


class _Content(NamedTuple):
    """What a revision was made of, and what came out."""

    converter_version: str
    span_count: int
    trace_ids: tuple[str, ...]
    outcome: str
    reward: float | None


class _Stored(NamedTuple):
    revision: int
    is_deleted: bool
    content: _Content


class _Plan(NamedTuple):
    revisions: pl.DataFrame
    """episode_id, revision: the episodes to write, with the revision to write them under."""
    tombstones: pl.DataFrame
    """Rows of ``episodes`` with ``is_deleted`` = 1."""


def write(store: Store, converted: Converted, loaded: Loaded, *, full: bool) -> Report:
    """Store the episodes of ``converted`` that differ from what is stored.

    Args:
        store: Where to.
        converted: The episodes that hold a touched trace.
        loaded: What they were made of; the rejections of its batch's traces are reported.
        full: Write unchanged episodes too, under the revision that they have.
    """
    plan = _plan(store, converted.episodes, loaded.closure.stored, _told_elsewhere(converted, loaded), full=full)
    written: dict[str, pl.DataFrame] = {}
    for table in _ROW_TABLES:
        rows = cast("pl.DataFrame", getattr(converted, table))
        written[table] = _renumber(rows, plan.revisions)
        store.insert(table, written[table])
    episodes = _renumber(converted.episodes, plan.revisions).with_columns(pl.lit(0, dtype=pl.UInt8).alias("is_deleted"))
    store.insert("episodes", pl.concat([episodes, plan.tombstones]))
    return _report(written, plan, converted.rejected, loaded.closure)


def _renumber(rows: pl.DataFrame, revisions: pl.DataFrame) -> pl.DataFrame:
    """The rows of the episodes to write, under their final revisions, in the columns' order."""
    return (
        rows.drop("revision").join(revisions, on="episode_id", how="inner", maintain_order="left").select(rows.columns)
    )


def _told_elsewhere(converted: Converted, loaded: Loaded) -> frozenset[str]:
    """Traces without an episode, because other traces tell of their model calls as well."""
    reasons = converted.rejected.filter(pl.col("reason").is_in(_NOT_OF_AN_EPISODE)).group_by("trace_id")
    found = reasons.agg(pl.len().alias("rejected"), pl.col("reason").eq("duplicate_model_call").any().alias("is_told"))
    if not found["is_told"].any() or loaded.closure.rejected:
        return frozenset()
    spans = loaded.spans.group_by("TraceId").len("spans")
    whole = found.filter("is_told").join(spans, left_on=["trace_id", "rejected"], right_on=["TraceId", "spans"])
    return frozenset(whole["trace_id"].to_list())


_NOT_OF_AN_EPISODE: Final = ("no_model_call", "duplicate_model_call", "duplicate_span", "unsupported_dialect")


def _plan(
    store: Store, concerned: pl.DataFrame, by_trace: pl.DataFrame, elsewhere: frozenset[str], *, full: bool
) -> _Plan:
    by_id = stored_episodes(store, episode_ids=concerned["episode_id"].to_list())
    stored = _read_stored(pl.concat([by_trace, by_id]).unique("episode_id", maintain_order=True))
    revisions: dict[str, int] = {}
    columns = ("episode_id", "revision", "span_count", "trace_ids", "outcome", "reward")
    for episode_id, natural, span_count, trace_ids, outcome, reward in concerned.select(columns).iter_rows():
        content = _Content(CONVERTER_VERSION, span_count, tuple(trace_ids), outcome, reward)
        revision = _revision(int(natural), content, stored.get(str(episode_id)), full=full)
        if revision is not None:
            revisions[str(episode_id)] = revision
    frame = pl.DataFrame(
        {"episode_id": list(revisions), "revision": list(revisions.values())},
        schema={"episode_id": pl.String, "revision": pl.UInt64},
    )
    return _Plan(frame, _tombstones(concerned, stored, elsewhere))


def _revision(natural: int, content: _Content, stored: _Stored | None, *, full: bool) -> int | None:
    """The revision to write an episode under; None when it is stored as it is."""
    if stored is None or natural > stored.revision:
        return natural
    if not stored.is_deleted and content == stored.content:
        return stored.revision if full else None
    return stored.revision + 1


def _read_stored(frame: pl.DataFrame) -> dict[str, _Stored]:
    return {
        row["episode_id"]: _Stored(
            revision=row["revision"],
            is_deleted=bool(row["is_deleted"]),
            content=_Content(
                row["converter_version"], row["span_count"], tuple(row["trace_ids"]), row["outcome"], row["reward"]
            ),
        )
        for row in frame.iter_rows(named=True)
    }


def _tombstones(concerned: pl.DataFrame, stored: dict[str, _Stored], elsewhere: frozenset[str]) -> pl.DataFrame:
    """Stored episodes whose traces now belong to others, or say nothing that others do not."""
    present = set(concerned["episode_id"].to_list())
    heirs = {
        str(trace_id): int(revision)
        for revision, trace_ids in concerned.select("revision", "trace_ids").iter_rows()
        for trace_id in trace_ids
    }
    rows: list[dict[str, object]] = []
    for episode_id, found in sorted(stored.items()):
        inherited = [heirs[trace_id] for trace_id in found.content.trace_ids if trace_id in heirs]
        is_gone = bool(inherited) or elsewhere.issuperset(found.content.trace_ids)
        if episode_id not in present and not found.is_deleted and is_gone:
            revision = max([found.revision + 1, *inherited])
            rows.append(
                {
                    "episode_id": episode_id,
                    "revision": revision,
                    "converter_version": CONVERTER_VERSION,
                    "is_deleted": 1,
                }
            )
    return pl.DataFrame(rows, schema={**EPISODES, "is_deleted": pl.UInt8})


def _report(written: dict[str, pl.DataFrame], plan: _Plan, rejected: pl.DataFrame, closure: Closure) -> Report:
    reasons = written["transitions"]["untrainable_reason"]
    # Of the scores that name no trace, those without an episode may judge one that this batch does not look at.
    of_no_trace = (pl.col("trace_id") == "") & (pl.col("reason") != "score_without_episode")
    concerned = rejected.filter(pl.col("trace_id").is_in(sorted(closure.batch.trace_ids)) | of_no_trace)
    return Report(
        episodes=plan.revisions.height,
        tombstones=plan.tombstones.height,
        transitions=written["transitions"].height,
        trajectories=written["trajectories"].height,
        row_starts=count_reasons(written["trajectories"]["row_start"]),
        failures=written["failures"].height,
        trainable=int((reasons == "").sum()),
        untrainable=count_reasons(reasons),
        rejected={**count_reasons(concerned["reason"]), **closure.rejected},
    )
