"""``spanloop backup`` and ``spanloop restore``: back a data directory up into one folder, and restore it."""

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from spanloop.runtime.command_line import command_line
from spanloop.runtime.draining import drain
from spanloop.semconv.environment import CLICKHOUSE_URL_ENV

from .console import err, out, print_table, progress_bar
from .options import DataDirOption, data_directory

if TYPE_CHECKING:
    from collections.abc import Generator

    from spanloop.administration import TransferProgress
    from spanloop.administration.backup_manifest import BackupManifest

_MIB: Final = 2**20
_DRAIN_S: Final = 300.0

DestinationArgument = Annotated[
    Path, typer.Argument(metavar="DEST", help="A new folder, best on another disk; it appears when it is complete.")
]
SourceArgument = Annotated[Path, typer.Argument(metavar="SRC", help="A folder that `spanloop backup` made.")]
ModelsOption = Annotated[bool, typer.Option("--models", help="Include the model folders, which are large.")]


def backup(destination: DestinationArgument, data_dir: DataDirOption = None, models: ModelsOption = False) -> None:
    """Back up spans, episodes, jobs and keys into one folder, while everything runs.

    The backup holds every span that was acknowledged before. An interrupted backup leaves no incomplete folder at DEST.

    Example: `spanloop backup /mnt/backups/spanloop-monday --models`
    """
    from spanloop.administration.backup import backup as create_backup
    from spanloop.semconv.errors import ConfigurationError
    from spanloop.store import connect

    if os.environ.get(CLICKHOUSE_URL_ENV):
        raise ConfigurationError(
            f"The store is the ClickHouse that {CLICKHOUSE_URL_ENV} names; its files cannot be read from here.",
            next_step="Back that server up with its own BACKUP statement; this command is for the embedded one.",
        )
    directory = data_directory(data_dir)
    with connect(directory, start=True) as store, _progress() as progress:

        def write_spool() -> None:
            progress("writing the spool", 0, 0)
            drain(directory, timeout_s=_DRAIN_S, captures_may_wait=True)

        manifest = create_backup(directory, store, destination, models=models, drain=write_spool, on_progress=progress)
    _print(manifest)
    err.print(f"left out: {'; '.join(manifest.left_out)}", markup=False)
    out.print(f"backed up to {destination.expanduser().absolute()}", markup=False)


def restore(source: SourceArgument, data_dir: DataDirOption = None) -> None:
    """Restore a backup into a new data directory; every file and every table's row count is checked.

    Example: `spanloop restore /mnt/backups/spanloop-monday --data-dir ./restored`
    """
    from spanloop.administration.restore import restore as restore_backup
    from spanloop.datadir import DataDir

    directory = DataDir(data_dir)
    with _progress() as progress:
        manifest = restore_backup(source, directory, on_progress=progress)
    _print(manifest)
    if not manifest.has_models:
        err.print("the backup has no model folders: add a model again before serving it")
    out.print(f"restored the state of {manifest.created_at} to {directory.path}", markup=False)
    err.print(f"start it: {command_line('up', directory)}", markup=False)


@contextmanager
def _progress() -> "Generator[TransferProgress]":
    with progress_bar() as bar:
        task = bar.add_task("starting", total=None, note="MiB")

        def progress(action: str, done_bytes: int, all_bytes: int) -> None:
            total = None if not all_bytes else max(1, all_bytes // _MIB)
            bar.update(task, description=action, completed=done_bytes // _MIB, total=total)

        yield progress


def _print(manifest: "BackupManifest") -> None:
    rows = [(name, f"{count:,}") for name, count in sorted(manifest.tables.items())]
    print_table(("table", "rows"), rows, numbers=("rows",))
    out.print(f"{len(manifest.files):,} files, {manifest.size_bytes / _MIB:,.1f} MiB", markup=False)
