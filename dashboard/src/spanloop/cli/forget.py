"""``spanloop forget``: erase the data of a trace, a session or a user."""

from typing import TYPE_CHECKING, Annotated, Final

import typer

from spanloop.runtime.draining import drain

from .console import err, print_table
from .options import DataDirOption, data_directory

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Set as AbstractSet

_WAIT_S: Final = 30.0


def forget(
    trace: Annotated[str, typer.Option("--trace", help="A trace id.")] = "",
    session: Annotated[str, typer.Option("--session", help="A session or conversation id.")] = "",
    user: Annotated[str, typer.Option("--user", help="A user id (user.id, enduser.id).")] = "",
    yes: Annotated[bool, typer.Option("--yes", help="Erase without a confirmation.")] = False,
    data_dir: DataDirOption = None,
) -> None:
    """Erase the spans, logs, scores, captures, dead letters and episodes of a trace, a session or a user.

    Episodes that lose a part are converted again from the rest. Data that the same app sends later is stored again.
    Rows in datasets of jobs are erased too; a running job has to end first. Models, exports and backups are not erased.

    Example: `spanloop forget --user u-1234`
    """
    from spanloop.administration.forget import forget as erase
    from spanloop.pipeline import run_lease
    from spanloop.store import connect
    from spanloop.training.dataset_erasing import Erased, erase_episodes

    directory = data_directory(data_dir)
    if not yes:
        targets = ", ".join(f"{kind} {name}" for kind, name in _targets(trace, session, user))
        typer.confirm(f"Erase {targets or 'nothing'} for good?", abort=True, err=True)
    with connect(directory, start=True) as store:
        drain(directory, timeout_s=_WAIT_S)
        datasets: list[Erased] = []

        def before(episode_ids: "AbstractSet[str]") -> None:
            datasets.extend(erase_episodes(directory, directory.jobs, episode_ids))

        with run_lease.acquire(store):
            done = erase(store, trace_id=trace, session_id=session, user_id=user, before=before)
    rows = [
        ("traces", len(done.trace_ids)),
        ("spans", done.spans),
        ("log records", done.log_records),
        ("captures", done.captures),
        ("dead letters", done.dead_letters),
        ("episodes", len(done.episode_ids)),
        ("rows of datasets", sum(each.rows for each in datasets)),
    ]
    print_table(("erased", "count"), ((name, f"{count:,}") for name, count in rows), numbers=("count",))
    for each in datasets:
        err.print(f"a job has trained on it; its model is not changed: {each.folder}", markup=False)


def _targets(trace: str, session: str, user: str) -> "Iterable[tuple[str, str]]":
    return [(kind, name) for kind, name in (("trace", trace), ("session", session), ("user", user)) if name]
