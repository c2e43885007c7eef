"""``spanloop export``: write stored episodes as training files for other programs."""

from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ..console import err, print_table
from ..options import DataDirOption, data_directory, exact_version

if TYPE_CHECKING:
    from spanloop.converters.exports import Manifest

_EARLIEST: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST: Final = datetime(2262, 1, 1, tzinfo=UTC)


class KindName(StrEnum):
    """Formats of an export."""

    OPENAI = "openai"
    SHAREGPT = "sharegpt"
    JSONL = "jsonl"
    ATIF = "atif"
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

    `openai` writes JSONL for OpenAI's fine-tuning, `sharegpt` the same conversations as ShareGPT's turns, `preferences`
    JSONL with pairs of actions, `parquet` a Hugging Face dataset of transitions, `jsonl` the same rows as JSON, `atif`
    trajectories in Harbor's format, `verl` token rows. The manifest holds the query, the reasons of rejected episodes
    and every episode's revision. The same episodes give the same bytes.

    Example: `spanloop export openai refunds --task-prefix refund-`
    """
    from spanloop.converters.exports import ExportOptions
    from spanloop.store import connect
    from spanloop.training.exports.episode_files import Query, export_query

    options = ExportOptions(min_reward=min_reward, margin=margin, credit=credit or "", gamma=gamma)
    directory = data_directory(data_dir)
    version = exact_version(directory, policy_version) if policy_version else ""
    query = Query(sorted(task or []), task_prefix, version, _utc(since, _EARLIEST), _utc(until, _LATEST))
    with connect(directory, start=True) as store:
        print_manifest(export_query(store, query, kind, out, options), out)


def print_manifest(manifest: "Manifest", folder: Path) -> None:
    """Print how many rows an export accepted, rejected and wrote."""
    rows = [
        (f"{manifest.unit} accepted", f"{manifest.accepted:,}"),
        *((f"rejected: {reason}", f"{count:,}") for reason, count in manifest.rejected.items()),
        ("rows written", f"{manifest.rows:,}"),
    ]
    print_table(("exported", "count"), rows, numbers=("count",))
    if not manifest.rows:
        err.print(f"no rows were written; {folder / 'manifest.json'} has the reasons", markup=False)


def _utc(given: datetime | None, default: datetime) -> datetime:
    if given is None:
        return default
    return given.replace(tzinfo=UTC) if given.tzinfo is None else given.astimezone(UTC)
