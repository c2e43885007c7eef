"""``spanloop import``: import existing spans, log records and conversations into the store."""

import json
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from spanloop.runtime.command_line import command_line

from ..console import err, print_table, progress_bar
from ..options import DataDirOption, data_directory

if TYPE_CHECKING:
    from spanloop.importing import Reject

_MAX_PRINTED: Final = 10
_KIB: Final = 1024

PathsArgument = Annotated[list[Path], typer.Argument(metavar="PATH…", help="Files, or folders of files; .gz is fine.")]
RejectsOption = Annotated[
    Path | None, typer.Option("--rejects", help="Write every rejected item to this file, as JSON lines.")
]


def import_(paths: PathsArgument, data_dir: DataDirOption = None, rejects: RejectsOption = None) -> None:
    """Import existing spans, log records and conversations.

    Reads OTLP requests (JSON, one a file or one a line, or protobuf), output of the OpenTelemetry SDK's console
    exporter, and conversations in OpenAI's message format: JSON lines with `messages` or `traj`, optionally `tools`,
    `reward`, `task_id`, `agent` or `name`, `model` and `timestamp`. Importing again changes nothing. Exit code 1 when
    an item was rejected.

    Example: `spanloop import trajectories.jsonl.gz exported-spans/`
    """
    from spanloop.collector.redaction.redactor import Redactor
    from spanloop.collector.redaction.rules import load_rules
    from spanloop.importing import import_paths
    from spanloop.store import connect

    directory = data_directory(data_dir)
    redactor = Redactor(load_rules(directory))
    reject_count = 0
    with ExitStack() as stack:
        # Opened first, so that an unwritable file fails before the import.
        file = stack.enter_context(rejects.open("w", encoding="utf-8")) if rejects else None

        def on_reject(reject: "Reject") -> None:
            nonlocal reject_count
            reject_count += 1
            if reject_count <= _MAX_PRINTED:
                err.print(str(reject), markup=False)
            if file is not None:
                file.write(json.dumps(reject._asdict() | reject.place._asdict() | {"place": str(reject.place)}) + "\n")

        store = stack.enter_context(connect(directory, start=True))
        bar = stack.enter_context(progress_bar())
        task = bar.add_task("importing (KiB)", total=None, note="")

        def progress(done_bytes: int, all_bytes: int) -> None:
            bar.update(task, completed=done_bytes // _KIB, total=max(1, all_bytes // _KIB))

        report = import_paths(store, paths, on_reject=on_reject, progress=progress, redactor=redactor)
    if reject_count > _MAX_PRINTED:
        hint = "all are in " + str(rejects) if rejects else "--rejects FILE writes them all to a file"
        err.print(f"… and {reject_count - _MAX_PRINTED:,} more; {hint}", markup=False)
    kinds = [kind for kind in report.new if report.new[kind] or report.known[kind]]
    rows = [(kind, f"{report.new[kind]:,}", f"{report.known[kind]:,}") for kind in kinds]
    print_table(("imported", "new", "already there"), rows, numbers=("new", "already there"))
    reasons = [(reason, f"{count:,}") for reason, count in sorted(report.rejected.items())]
    if reasons:
        print_table(("rejected", "items"), reasons, numbers=("items",))
    err.print(f"{report.input:,} items: {report.accepted:,} accepted, {report.rejected_total:,} rejected")
    if sum(report.new.values()):
        err.print(f"a running spanloop converts them; else run: {command_line('convert', directory)}", markup=False)
    if report.rejected_total:
        raise typer.Exit(1)
