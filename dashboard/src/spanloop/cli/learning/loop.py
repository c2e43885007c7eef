"""``spanloop loop``: run the loop of an ``app.toml``."""

import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from spanloop.runtime.command_line import command_line
from spanloop.semconv.environment import CONFIG_ENV, find_configuration

from ..console import err, out, print_table
from ..options import DataDirOption, data_directory
from .loop_display import LoopDisplay, print_rounds

if TYPE_CHECKING:
    from collections.abc import Generator

    from spanloop.foundation.paths import DataDir
    from spanloop.training.loop.app_file import App
    from spanloop.training.loop.checks import CheckedApp
    from spanloop.training.loop.loop import LoopEnd, LoopOrder

_INTERRUPTED: Final = 130


def loop(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The app's file, such as app.toml.")],
    rounds: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Go on until the loop has so many rounds in all.",
            show_default="finish the open round, or one more",
        ),
    ] = None,
    until: Annotated[
        str,
        typer.Option(
            metavar="GOAL",
            help="Go on until the champion's evaluation is so: METRIC OPERATOR NUMBER, such as 'success >= 0.9'.",
            show_default="no goal",
        ),
    ] = "",
    every: Annotated[
        str,
        typer.Option(
            metavar="INTERVAL", help="Begin a round at an interval: 30m, 6h or 1d; for the first time at once."
        ),
    ] = "",
    cron: Annotated[str, typer.Option(help="Begin a round at the times of five cron fields, in UTC.")] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything and print the plan; start nothing.")
    ] = False,
    restart_round: Annotated[
        bool, typer.Option("--restart-round", help="End a round that is open as abandoned, and begin another one.")
    ] = False,
    data_dir: DataDirOption = None,
) -> None:
    """Run rounds of an app: collect with the champion, train, evaluate, decide and deploy.

    The file names agent, tasks, rewards, training, evaluation, promotion and budget; `spanloop init` writes one. It is
    checked completely before anything starts. Ctrl-C loses nothing: the same command continues. Exit code 1 when a step
    fails, or the budget ends the loop.

    Example: `spanloop loop app.toml --rounds 2`

    Example: `spanloop loop app.toml --until "success >= 0.9"`

    Example: `spanloop loop app.toml --cron '0 3 * * *'`
    """
    from spanloop.training.loop.goal import Goal
    from spanloop.training.loop.loop import LoopOrder
    from spanloop.training.loop.timetable import Timetable

    order = LoopOrder(rounds, Goal.parse(until) if until else None, Timetable.parse(cron, every), restart_round)
    directory = data_directory(data_dir)
    end = run_file(directory, file, order, dry_run=dry_run)
    if end is not None:
        out.print(f"{end.reason}", markup=False)


def run_file(directory: "DataDir", file: Path, order: "LoopOrder", *, dry_run: bool = False) -> "LoopEnd | None":
    """Check a file and run its loop; return why it ended, None after a dry run.

    Raises:
        SpanloopError: The file is invalid, a step failed, or the budget ends the loop.
        Exit: With 130 after Ctrl-C.
    """
    from spanloop.foundation.settings import load_configuration
    from spanloop.store import connect
    from spanloop.training.loop.app_file import read_app
    from spanloop.training.loop.checks import check_app
    from spanloop.training.loop.loop import Loop
    from spanloop.training.loop.services import require_services

    with in_folder_of(directory, file):
        app = read_app(Path(file.name))
        rule = app.promotion or load_configuration(directory.path).promotion
        if not dry_run:
            require_services(directory)
        with connect(directory, start=dry_run) as store:
            checked = check_app(directory, app, rule, store)
            for note in checked.notes:
                err.print(note, markup=False)
            if dry_run:
                _print_plan(directory, app, checked)
                return None
            with LoopDisplay() as display:
                try:
                    end = Loop(directory, store, checked, display).run(order)
                except KeyboardInterrupt:
                    display.interrupted()
                    raise typer.Exit(_INTERRUPTED) from None
    print_rounds(end.rounds)
    return end


@contextlib.contextmanager
def in_folder_of(directory: "DataDir", file: Path) -> "Generator[None]":
    """Let relative paths in the file, and modules that it names, start at its folder."""
    folder = file.absolute().parent
    if not folder.is_dir():
        raise typer.BadParameter(f"there is no folder {folder}", param_hint="FILE")
    if (configuration := find_configuration(directory.path)) is not None:
        os.environ[CONFIG_ENV] = str(configuration.absolute())
    sys.path.append(str(folder))
    try:
        with contextlib.chdir(folder):
            yield
    finally:
        sys.path.remove(str(folder))


def _print_plan(directory: "DataDir", app: "App", checked: "CheckedApp") -> None:
    from spanloop.training.loop.rounds import LoopRounds

    rounds = LoopRounds(directory).list(app.model.name)
    opened = next((each for each in rounds if each.outcome is None), None)
    next_number = opened.number if opened else len(rounds) + 1
    spec = app.training(next_number)
    limits = {name: value for name, value in app.budget.model_dump().items() if value}
    done = ", ".join(step.name for step in opened.steps if step.is_finished) if opened else ""
    out.print(f"{app.model.name}: everything is in order; nothing was started", markup=False)
    print_table(
        ("", f"round {next_number}"),
        [
            ("rounds before", str(sum(each.outcome is not None for each in rounds))),
            *([("done of it", done or "nothing yet")] if opened else []),
            ("agent", app.run.agent),
            ("collects", f"{len(checked.training_tasks.ids):,} tasks, {app.run.attempts} attempts each"),
            ("trains", f"{spec.kind}, {spec.optimiser.steps} steps"),
            ("evaluates", f"{len(checked.evaluation_tasks.ids):,} tasks, {app.evaluation.attempts} attempts each"),
            ("budget", ", ".join(f"{name} {value:,}" for name, value in limits.items()) or "no limit"),
        ],
    )
    err.print(f"look at the rounds: {command_line('loop FILE', directory)}", markup=False) if rounds else None
