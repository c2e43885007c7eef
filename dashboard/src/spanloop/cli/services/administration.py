"""Commands of administration: ``spanloop backup``, ``restore``, ``copy`` and ``forget``."""

from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from spanloop.runtime.command_line import command_line
from spanloop.runtime.draining import drain
from spanloop.semconv.environment import CLICKHOUSE_URL_ENV, CONTROL_URL_ENV, read_setting

from ..console import err, out, print_table, progress_bar
from ..options import DataDirOption, configured_directory, data_directory

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable
    from collections.abc import Set as AbstractSet

    from spanloop.administration import TransferProgress
    from spanloop.administration.backup_manifest import BackupManifest
    from spanloop.administration.copying import CopiedTable

_MIB: Final = 2**20
_BACKUP_DRAIN_S: Final = 300.0
_FORGET_DRAIN_S: Final = 30.0

DestinationArgument = Annotated[
    str,
    typer.Argument(
        metavar="DEST",
        help="A new folder, best on another disk, or a URL such as s3://bucket/backups/monday; it appears when it is "
        "complete.",
    ),
]
SourceArgument = Annotated[
    str, typer.Argument(metavar="SRC", help="A folder that `spanloop backup` made, or the URL that it was sent to.")
]
KeepKeysOption = Annotated[
    bool,
    typer.Option(
        "--keep-keys", help="Leave API keys and users of the backup out; the shared folder keeps those that it has."
    ),
]
ModelsOption = Annotated[bool, typer.Option("--models", help="Include the model folders, which are large.")]


def backup(destination: DestinationArgument, data_dir: DataDirOption = None, models: ModelsOption = False) -> None:
    """Back up spans, episodes, jobs, keys and users into one folder, while everything runs.

    The backup holds every span that was acknowledged before, also from a ClickHouse and a PostgreSQL elsewhere.
    Conversions wait until ClickHouse is backed up. An interrupted backup leaves no incomplete folder at DEST.

    A backup at a URL is made beside the data directory first, which needs its size there, and is sent then.

    Example: `spanloop backup /mnt/backups/spanloop-monday --models`
    """
    from spanloop.administration.backup import Source
    from spanloop.administration.backup import backup as create_backup
    from spanloop.administration.backup_objects import send_backup
    from spanloop.foundation.objects.storage import is_url
    from spanloop.pipeline import run_lease
    from spanloop.store import connect
    from spanloop.training.dataset.dataset_objects import fetch_missing
    from spanloop.training.jobs.database.database_copy import save_control_database
    from spanloop.training.jobs.paths import ControlPaths
    from spanloop.training.models.saved_registry import fetch_version_objects, find_lost_versions

    directory = data_directory(data_dir)
    paths = ControlPaths.of(directory)
    with connect(directory, start=True) as store, _progress() as progress:

        def write_spool() -> None:
            progress("writing the spool", 0, 0)
            drain(directory, timeout_s=_BACKUP_DRAIN_S, captures_may_wait=True)

        def collect_objects(saved: Path, files: Path) -> None:
            fetch_missing(directory.path, files / "jobs")
            if models and saved.exists():
                fetch_version_objects(directory.path, saved, files / "models")

        source = Source(
            store,
            is_external=bool(read_setting(CLICKHOUSE_URL_ENV)),
            drain=write_spool,
            paused_conversion=partial(run_lease.acquire, store),
            save_control=partial(save_control_database, paths) if read_setting(CONTROL_URL_ENV) else None,
            find_lost_versions=find_lost_versions,
            collect_objects=collect_objects,
        )

        def create(folder: Path) -> "BackupManifest":
            return create_backup(directory, source, folder, models=models, on_progress=progress)

        if is_url(destination):
            work = directory.path.with_name(f".{directory.path.name}.backup")
            manifest = send_backup(destination, work, create, progress)
        else:
            destination = str(Path(destination).expanduser().absolute())
            manifest = create(Path(destination))
    _print_manifest(manifest)
    err.print(f"left out: {'; '.join(manifest.left_out)}", markup=False)
    out.print(f"backed up to {destination}", markup=False)


def restore(source: SourceArgument, data_dir: DataDirOption = None, keep_keys: KeepKeysOption = False) -> None:
    """Restore a backup into a new data directory; every file and every table's row count is checked.

    With SPANLOOP_CLICKHOUSE_URL or SPANLOOP_CONTROL_URL set, rows, or jobs and model versions, go into those databases,
    and with SPANLOOP_SHARED_DIR set models, jobs' files, keys and users into that folder; they have to be empty.

    Example: `spanloop restore /mnt/backups/spanloop-monday --data-dir ./restored`
    """
    from spanloop.administration.backup_objects import received_backup
    from spanloop.administration.restore import Targets, check_empty
    from spanloop.administration.restore import restore as restore_backup
    from spanloop.foundation.objects.storage import is_url
    from spanloop.store import connect
    from spanloop.training.jobs.database.database_copy import load_control_database, renew_tokens
    from spanloop.training.jobs.paths import ControlPaths

    directory = configured_directory(data_dir)
    paths = ControlPaths.of(directory)
    targets = Targets(
        store=partial(connect, directory) if read_setting(CLICKHOUSE_URL_ENV) else None,
        renew_tokens=renew_tokens,
        load_control=partial(load_control_database, paths) if read_setting(CONTROL_URL_ENV) else None,
    )
    with _progress() as progress, ExitStack() as stack:
        folder = Path(source)
        if is_url(source):
            check_empty(directory)  # before anything is received
            work = directory.path.with_name(f".{directory.path.name}.received")
            folder = stack.enter_context(received_backup(source, work, progress))
        manifest = restore_backup(folder, directory, on_progress=progress, targets=targets, keep_keys=keep_keys)
    _print_manifest(manifest)
    if not manifest.has_models:
        err.print("the backup has no model folders: add a model again before serving it")
    out.print(f"restored the state of {manifest.created_at} to {directory.path}", markup=False)
    if targets.store or targets.load_control:
        err.print("rows, jobs and models are where the settings name their places; start the roles there")
    else:
        err.print(f"start it: {command_line('up', directory)}", markup=False)


@contextmanager
def _progress() -> "Generator[TransferProgress]":
    with progress_bar() as bar:
        task = bar.add_task("starting", total=None, note="MiB")

        def progress(action: str, done_bytes: int, all_bytes: int) -> None:
            total = None if not all_bytes else max(1, all_bytes // _MIB)
            bar.update(task, description=action, completed=done_bytes // _MIB, total=total)

        yield progress


def _print_manifest(manifest: "BackupManifest") -> None:
    rows = [(name, f"{count:,}") for name, count in sorted(manifest.tables.items())]
    print_table(("table", "rows"), rows, numbers=("rows",))
    out.print(f"{len(manifest.files):,} files, {manifest.size_bytes / _MIB:,.1f} MiB", markup=False)


def copy(
    to: Annotated[
        str,
        typer.Option(
            "--to",
            envvar="SPANLOOP_COPY_URL",
            metavar="URL",
            help="http(s)://user:password@host:port/database; a missing database is created.",
            show_default=False,
        ),
    ],
    to_cluster: Annotated[
        str,
        typer.Option("--to-cluster", help="Name of a cluster of that ClickHouse, over which the rows are spread."),
    ] = "",
    data_dir: DataDirOption = None,
) -> None:
    """Copy the whole store into another ClickHouse, to continue there.

    Sends only rows that the target does not have, and changes nothing else in it. Run it again after an interruption,
    or to send newer rows. Put the URL into SPANLOOP_COPY_URL to keep its password out of the shell's history.

    Example: `spanloop copy --to https://me@clickhouse.example.com:8443/spanloop`
    """
    from spanloop.administration.copying import check_copy, copy_store
    from spanloop.store import Store, connect
    from spanloop.store.client import Address

    address = Address.parse(to, cluster=to_cluster)
    directory = data_directory(data_dir)
    with connect(directory, start=True) as source, Store.open(address) as target:
        with progress_bar() as bar:
            task = bar.add_task("starting", total=None, note="rows")

            def progress(table: str, done: int, total: int) -> None:
                bar.update(task, description=table, completed=done, total=max(1, total))

            copied = copy_store(source, target, on_progress=progress)
        _print_copied(copied)
        check_copy(copied, target)
        out.print(f"{sum(table.sent for table in copied):,} rows were sent to {target.url}", markup=False)
    err.print(f"to continue there: stop spanloop, and start it with {CLICKHOUSE_URL_ENV} set to that address")


def _print_copied(copied: "list[CopiedTable]") -> None:
    rows = [(table.name, f"{table.source_rows:,}", f"{table.target_rows:,}", f"{table.sent:,}") for table in copied]
    print_table(("table", "rows here", "rows there", "sent"), rows, numbers=("rows here", "rows there", "sent"))


def forget(
    trace: Annotated[str, typer.Option("--trace", help="A trace id.")] = "",
    session: Annotated[str, typer.Option("--session", help="A session or conversation id.")] = "",
    user: Annotated[str, typer.Option("--user", help="A user id (user.id, enduser.id).")] = "",
    yes: Annotated[bool, typer.Option("--yes", help="Erase without a confirmation.")] = False,
    data_dir: DataDirOption = None,
) -> None:
    """Erase the spans, logs, scores, captures, dead letters and episodes of a trace, a session or a user.

    Episodes that lose a part are converted again from the rest. Data that the same app sends later is stored again.
    Rows in datasets of jobs, answers in runs on tasks, and the gateway's stored responses on this machine are erased
    too; a running job or run has to end first. Models, exports and backups are not erased.

    Example: `spanloop forget --user u-1234`
    """
    from spanloop.administration.forget import forget as erase
    from spanloop.evaluation.runner.erasing import erase_answers
    from spanloop.gateway.apis.response_store import erase_responses
    from spanloop.pipeline import run_lease
    from spanloop.store import connect
    from spanloop.training.attempt_pool.offers import Offers
    from spanloop.training.jobs.database.control_database import ControlDatabase
    from spanloop.training.jobs.paths import ControlPaths
    from spanloop.training.run.dataset_erasing import Erased, erase_episodes

    directory = data_directory(data_dir)
    if not yes:
        targets = ", ".join(f"{kind} {name}" for kind, name in _targets(trace, session, user))
        typer.confirm(f"Erase {targets or 'nothing'} for good?", abort=True, err=True)
    with connect(directory, start=True) as store:
        drain(directory, timeout_s=_FORGET_DRAIN_S)
        datasets: list[Erased] = []

        def before(episode_ids: "AbstractSet[str]") -> None:
            datasets.extend(erase_episodes(directory, directory.jobs, episode_ids))
            erase_answers(directory.runs, episode_ids)
            Offers(ControlDatabase(ControlPaths.of(directory))).remove(episode_ids)

        def before_responses(response_ids: "AbstractSet[str]", trace_ids: "AbstractSet[str]") -> None:
            responses.append(erase_responses(stored_responses, response_ids=response_ids, trace_ids=trace_ids))

        stored_responses = directory.gateway / "responses"
        with run_lease.acquire(store):
            # Before the rows: an interrupted command is repeated, and finds what it did not erase.
            traces = {trace} if trace else set[str]()
            responses = [erase_responses(stored_responses, trace_ids=traces, session_id=session, user_id=user)]
            done = erase(
                store,
                trace_id=trace,
                session_id=session,
                user_id=user,
                before=before,
                before_responses=before_responses,
            )
    rows = [
        ("traces", len(done.trace_ids)),
        ("spans", done.spans),
        ("log records", done.log_records),
        ("captures", done.captures),
        ("dead letters", done.dead_letters),
        ("episodes", len(done.episode_ids)),
        ("stored responses", sum(responses)),
        ("rows of datasets", sum(each.rows for each in datasets)),
    ]
    print_table(("erased", "count"), ((name, f"{count:,}") for name, count in rows), numbers=("count",))
    for each in datasets:
        err.print(f"a job has trained on it; its model is not changed: {each.folder}", markup=False)


def _targets(trace: str, session: str, user: str) -> "Iterable[tuple[str, str]]":
    return [(kind, name) for kind, name in (("trace", trace), ("session", session), ("user", user)) if name]
