"""``spanloop dataset``: make, list, show, export and delete named versions of episode revisions."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..console import err, out, print_table
from ..options import DataDirOption, data_directory
from .export import KindName, print_manifest

if TYPE_CHECKING:
    from collections.abc import Iterable

app = typer.Typer(
    help="Name episodes as a data set, whose versions never change; train on it and export it.", no_args_is_help=True
)

_Name = Annotated[str, typer.Argument(metavar="NAME", help="The data set.")]
_Reference = Annotated[
    str, typer.Argument(metavar="NAME[@VERSION]", help="The data set, such as refunds@v2; its newest version without.")
]
_Comment = Annotated[str, typer.Option(help="The reason.")]
_By = Annotated[str, typer.Option("--by", help="Your name.")]


@app.command()
def add(
    name: _Name,
    filters: Annotated[
        str,
        typer.Option(
            "--filter", help="Episodes that match: the address of the page Episodes, or outcome=failure&time=7d."
        ),
    ] = "",
    episode: Annotated[list[str] | None, typer.Option(help="Also this episode; may be given several times.")] = None,
    comment: _Comment = "",
    created_by: _By = "person",
    data_dir: DataDirOption = None,
) -> None:
    """Add episodes to a data set, and print its new version.

    The first call makes version 1. Each further one makes the next version, of the episodes of the newest version and
    the added ones. The version keeps the revisions that the episodes have now.

    Example: `spanloop dataset add refunds --filter 'outcome=failure&tool=refund_order&time=7d'`
    """
    import polars as pl

    from spanloop.client.filters import read_filters
    from spanloop.dashboard.queries.data_sets import fetch_matching
    from spanloop.foundation.errors import ConfigurationError
    from spanloop.store import connect
    from spanloop.store.data_sets import add_to_data_set, current_episodes

    if not filters and not episode:
        raise ConfigurationError(
            "No episodes are named.", next_step="Give --filter, --episode or both; see spanloop dataset add --help."
        )
    with connect(data_directory(data_dir), start=True) as store:
        ids = list(dict.fromkeys(episode or []))
        matching = fetch_matching(store, read_filters(filters).filters) if filters else None
        if matching is None:
            addition = add_to_data_set(store, name, ids, created_by=created_by, source="selection", comment=comment)
        else:
            selected = current_episodes(store, ids)
            if missing := sorted(set(ids) - set(selected["episode_id"].to_list())):
                raise ConfigurationError(f"The store has no episode {', '.join(missing)}.")
            both = pl.concat([matching, selected]).unique("episode_id", maintain_order=True)
            addition = add_to_data_set(store, name, both, created_by=created_by, source=filters, comment=comment)
    out.print(addition.data_set.reference, markup=False)
    note = _counts([("added", addition.added), *addition.rejected.items()])
    err.print(f"{note}; the version has {addition.data_set.episodes:,} episodes", markup=False)


@app.command()
def remove(
    name: _Name,
    episodes: Annotated[list[str], typer.Argument(metavar="EPISODE…", help="Ids of episodes.")],
    comment: _Comment = "",
    created_by: _By = "person",
    data_dir: DataDirOption = None,
) -> None:
    """Make the next version of a data set without some episodes, and print it. Earlier versions keep them.

    Example: `spanloop dataset remove refunds 4bf92f3577b34da6a3ce929d0e0e4736`
    """
    from spanloop.store import connect
    from spanloop.store.data_sets import remove_from_data_set

    with connect(data_directory(data_dir), start=True) as store:
        version = remove_from_data_set(store, name, episodes, created_by=created_by, comment=comment)
    out.print(version.reference, markup=False)


@app.command("list")
def list_data_sets(data_dir: DataDirOption = None) -> None:
    """List all versions of all data sets, the newest first.

    Example: `spanloop dataset list`
    """
    from spanloop.store import connect
    from spanloop.store.data_sets import fetch_data_sets

    with connect(data_directory(data_dir), start=True) as store:
        data_sets = fetch_data_sets(store)
    if not data_sets:
        err.print("no data sets")
        return
    rows = [
        (
            each.reference,
            f"{each.episodes:,}",
            f"{each.added:,}",
            f"{each.forgotten:,}",
            each.created_by,
            f"{each.created_at:%Y-%m-%d %H:%M:%S}",
            each.source,
            each.comment,
        )
        for each in data_sets
    ]
    titles = ("data set", "episodes", "added", "forgotten", "by", "made", "source", "comment")
    print_table(titles, rows, numbers=("episodes", "added", "forgotten"))


@app.command()
def show(reference: _Reference, data_dir: DataDirOption = None) -> None:
    """Show a version: its composition, the steps that cannot be trained on, and the evaluations that share its tasks.

    Example: `spanloop dataset show refunds@v2`
    """
    from spanloop.store import connect
    from spanloop.store.data_set_contents import fetch_composition, fetch_leakage, fetch_rejections
    from spanloop.store.data_sets import find_data_set

    with connect(data_directory(data_dir), start=True) as store:
        data_set = find_data_set(store, reference)
        composition = fetch_composition(store, data_set)
        rejections = fetch_rejections(store, data_set)
        leakage = fetch_leakage(store, data_set)
    out.print(f"{data_set.reference}: {data_set.episodes:,} episodes, by {data_set.created_by}", markup=False)
    rows = [(field, value or "none", f"{count:,}") for field, value, count in composition.iter_rows()]
    print_table(("field", "value", "episodes"), rows, numbers=("episodes",))
    steps = [(reason or "can be trained on", f"{count:,}", f"{has:,}") for reason, count, has in rejections.iter_rows()]
    print_table(("steps", "count", "in episodes"), steps, numbers=("count", "in episodes"))
    if leakage.is_empty():
        err.print("no evaluation shares a task with it")
        return
    shared = [
        (
            row["evaluation_id"],
            str(row["shared_tasks"]),
            str(row["tasks"]),
            str(row["episodes"]),
            str(row["shared_episodes"]),
        )
        for row in leakage.to_dicts()
    ]
    titles = ("shares tasks with", "shared", "of tasks", "episodes here", "of them evaluated")
    print_table(titles, shared, numbers=titles[1:])


@app.command()
def export(
    reference: _Reference,
    kind: Annotated[KindName, typer.Argument(help="The format to write.")],
    folder: Annotated[Path, typer.Argument(metavar="OUT", help="A new folder, or an earlier export to replace.")],
    min_reward: Annotated[
        float | None, typer.Option(help="openai, sharegpt: at least this reward, instead of a successful outcome.")
    ] = None,
    margin: Annotated[float, typer.Option(min=0.0, help="preferences: rewards differ by more than this.")] = 0.0,
    data_dir: DataDirOption = None,
) -> None:
    """Export a version as files for other programs, as `spanloop export` does.

    Example: `spanloop dataset export refunds@v2 openai refunds`
    """
    from spanloop.converters.exports import ExportOptions
    from spanloop.store import connect
    from spanloop.store.data_sets import find_data_set
    from spanloop.training.exports.episode_files import export_data_set

    options = ExportOptions(min_reward=min_reward, margin=margin)
    with connect(data_directory(data_dir), start=True) as store:
        print_manifest(export_data_set(store, find_data_set(store, reference), kind, folder, options), folder)


@app.command()
def delete(
    name: _Name,
    yes: Annotated[bool, typer.Option("--yes", help="Delete without a confirmation.")] = False,
    data_dir: DataDirOption = None,
) -> None:
    """Delete a data set with all its versions; its episodes stay, and jobs keep what they trained on.

    A schedule that names it finds no data set from then on, and its next job fails with this reason.

    Example: `spanloop dataset delete refunds`
    """
    from spanloop.store import connect
    from spanloop.store.data_sets import delete_data_set, fetch_data_sets, find_data_set

    with connect(data_directory(data_dir), start=True) as store:
        versions = len(fetch_data_sets(store, find_data_set(store, name).name))
        if not yes:
            typer.confirm(f"Delete the {versions} versions of {name}?", abort=True, err=True)
        out.print(f"deleted {name} with {delete_data_set(store, name)} versions", markup=False)


def _counts(counts: "Iterable[tuple[str, int]]") -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts)
