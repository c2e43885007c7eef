"""``spanloop export``: write stored episodes as training files for other programs."""

from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer

from ..console import err, print_table
from ..options import DataDirOption, data_directory, exact_version

if TYPE_CHECKING:
    from collections.abc import Iterator

    import polars as pl

    from spanloop.converters.exports import Kind, Pinned
    from spanloop.store import Store

_ROWS_AT_ONCE: Final = 5_000
_EPISODES_AT_ONCE: Final = 1_000
_EARLIEST: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST: Final = datetime(2262, 1, 1, tzinfo=UTC)


class KindName(StrEnum):
    """Formats of an export."""

    OPENAI = "openai"
    PREFERENCES = "preferences"
    PARQUET = "parquet"
    VERL = "verl"


class CreditName(StrEnum):
    """Methods that assign an episode's reward to its steps."""

    BROADCAST = "broadcast"
    RETURNS = "returns"
    ATTRIBUTED = "attributed"
    GROUP = "group"
    LEAVE_ONE_OUT = "leave-one-out"
    STEP_GROUPS = "step-groups"


def export(
    kind: Annotated[KindName, typer.Argument(help="The format to write.")],
    out: Annotated[Path, typer.Argument(help="A new folder, or an earlier export to replace.")],
    data_dir: DataDirOption = None,
    task: Annotated[list[str] | None, typer.Option(help="Only this task; may be given several times.")] = None,
    task_prefix: Annotated[str, typer.Option(help="Only tasks whose id starts with this.")] = "",
    policy_version: Annotated[
        str, typer.Option(help="Only episodes of this model, as NAME@VERSION or NAME@ALIAS.")
    ] = "",
    since: Annotated[
        datetime | None, typer.Option(help="Only episodes that began at this time or later (UTC).")
    ] = None,
    until: Annotated[datetime | None, typer.Option(help="Only episodes that began before this time (UTC).")] = None,
    min_reward: Annotated[
        float | None, typer.Option(help="openai: at least this reward, instead of a successful outcome.")
    ] = None,
    margin: Annotated[float, typer.Option(min=0.0, help="preferences: rewards differ by more than this.")] = 0.0,
    credit: Annotated[CreditName | None, typer.Option(help="parquet: add a column with each step's credit.")] = None,
    gamma: Annotated[float, typer.Option(min=0.0, max=1.0, help="parquet: the discount factor of --credit.")] = 1.0,
) -> None:
    """Export episodes as files for other programs, with a manifest.

    `openai` writes JSONL for OpenAI's fine-tuning, `preferences` JSONL with pairs of actions, `parquet` a Hugging Face
    dataset of transitions, `verl` token rows. The manifest holds the query, the reasons of rejected episodes and every
    episode's revision. The same episodes give the same bytes.

    Example: `spanloop export openai refunds --task-prefix refund-`
    """
    from spanloop.converters.exports import KINDS, ExportOptions
    from spanloop.converters.exports import export as write_export
    from spanloop.store import connect
    from spanloop.store.pinned_revisions import pin

    options = ExportOptions(min_reward=min_reward, margin=margin, credit=credit or "", gamma=gamma)
    directory = data_directory(data_dir)
    version = exact_version(directory, policy_version) if policy_version else ""
    query = _Query(sorted(task or []), task_prefix, version, _utc(since, _EARLIEST), _utc(until, _LATEST))
    with connect(directory, start=True) as store:
        groups = _query_batches(store, query)
        pin(store, [episode for group in groups for episode in group])
        manifest = write_export(
            kind,
            KINDS[kind],
            _load_batches(store, KINDS[kind], groups),
            out,
            query={name: str(v) if isinstance(v, datetime) else v for name, v in query._asdict().items()},
            episodes=[episode for group in groups for episode in group],
            options=options,
        )
    rows = [
        (f"{manifest.unit} accepted", f"{manifest.accepted:,}"),
        *((f"rejected: {reason}", f"{count:,}") for reason, count in manifest.rejected.items()),
        ("rows written", f"{manifest.rows:,}"),
    ]
    print_table(("exported", "count"), rows, numbers=("count",))
    if not manifest.rows:
        err.print(f"no rows were written; {out / 'manifest.json'} has the reasons", markup=False)


class _Query(NamedTuple):
    """Parameters of the query ``export_episodes``."""

    task_ids: list[str]
    task_prefix: str
    policy_version: str
    since: datetime
    until: datetime


def _utc(given: datetime | None, default: datetime) -> datetime:
    if given is None:
        return default
    return given.replace(tzinfo=UTC) if given.tzinfo is None else given.astimezone(UTC)


def _query_batches(store: "Store", query: _Query) -> "list[list[Pinned]]":
    """Return the episodes in batches of complete groups whose rows fit into memory."""
    from spanloop.converters.exports import Pinned

    episodes = store.query("export_episodes", **query._asdict())
    batches: list[list[Pinned]] = []
    group, rows = "", 0
    for episode_id, revision, group_id, steps in episodes.iter_rows():
        is_full = rows >= _ROWS_AT_ONCE or (batches and len(batches[-1]) >= _EPISODES_AT_ONCE)
        if not batches or (is_full and group_id != group):
            batches.append([])
            rows = 0
        batches[-1].append(Pinned(episode_id, revision))
        group, rows = group_id, rows + steps
    return batches


def _load_batches(store: "Store", kind: "Kind", groups: "list[list[Pinned]]") -> "Iterator[pl.DataFrame]":
    for group in groups:
        yield store.query(
            f"export_{kind.source}",
            episode_ids=[episode.episode_id for episode in group],
            revisions=[episode.revision for episode in group],
        )
