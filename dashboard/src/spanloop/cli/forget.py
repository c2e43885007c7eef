"""``spanloop forget``: erase a trace, a session or a user."""

from typing import TYPE_CHECKING, Annotated, Final

import typer

from .console import err, print_table
from .draining import drain
from .options import DataDirOption, data_directory

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from spanloop.store import DataDir

_WAIT_S: Final = 30.0


def forget(
    trace: Annotated[str, typer.Option("--trace", help="A trace id.")] = "",
    session: Annotated[str, typer.Option("--session", help="A session or conversation id.")] = "",
    user: Annotated[str, typer.Option("--user", help="A user id (user.id, enduser.id).")] = "",
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    data_dir: DataDirOption = None,
) -> None:
    """Erase a trace, a session or a user: spans, logs, scores, captures, dead letters, and all that was made of them.

    Episodes that lose a part are made anew of the rest. What the same app sends later is stored again. Datasets of jobs
    that trained on it are named, not touched; backups are yours to erase.

    Example: `spanloop forget --user u-1234`
    """
    from spanloop.pipeline import turn
    from spanloop.store import connect
    from spanloop.store.forget import forget as erase

    directory = data_directory(data_dir)
    if not yes:
        what = ", ".join(f"{kind} {name}" for kind, name in _named(trace, session, user))
        typer.confirm(f"Erase {what or 'nobody'} for good?", abort=True, err=True)
    with connect(directory, start=True) as store:
        drain(directory, timeout_s=_WAIT_S)
        with turn.held(store):
            done = erase(store, trace_id=trace, session_id=session, user_id=user)
    rows = [
        ("traces", len(done.trace_ids)),
        ("spans", done.spans),
        ("log records", done.log_records),
        ("captures", done.captures),
        ("dead letters", done.dead_letters),
        ("episodes", len(done.episode_ids)),
    ]
    print_table(("erased", "count"), ((name, f"{count:,}") for name, count in rows), numbers=("count",))
    for folder in _datasets(directory, done.episode_ids):
        err.print(f"a job trained on it and keeps a copy: {folder}", markup=False)


def _named(trace: str, session: str, user: str) -> "Iterable[tuple[str, str]]":
    return [(kind, name) for kind, name in (("trace", trace), ("session", session), ("user", user)) if name]


def _datasets(directory: "DataDir", episode_ids: "Iterable[str]") -> "list[Path]":
    """Folders of jobs whose dataset holds one of the episodes."""
    from pydantic import ValidationError

    from spanloop.training.dataset_manifest import MANIFEST_NAME, Manifest

    wanted = set(episode_ids)
    found: list[Path] = []
    for path in sorted(directory.jobs.glob(f"*/{MANIFEST_NAME}")):
        try:
            manifest = Manifest.model_validate_json(path.read_text(encoding="utf-8"))
        except ValidationError:
            err.print(f"{path} cannot be read: look yourself whether its dataset holds a copy", markup=False)
            continue
        if any(pinned.episode_id in wanted for pinned in manifest.pinned):
            found.append(path.parent)
    return found
