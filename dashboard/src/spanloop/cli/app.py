"""The command tree. Each command is in its own module, which imports what it needs when the command runs."""

import errno
import logging
import sys
from importlib.metadata import version
from typing import Annotated, Final, NoReturn

import typer

from spanloop.demo import command as demo
from spanloop.foundation.errors import DataDirectoryError, SpanloopError

from .console import print_error
from .data import convert, dataset, dead_letters, export, import_, judge, marks, redact, scores, spans, store
from .learning import canary, evaluate, evaluations, init, jobs, loop, models, promotion, schedules, train
from .learning import run as run_command
from .learning.spec_options import SpecCommand
from .services import administration, alerts, audit, doctor, extensions, instrument, keys, serve, status, up, users

app = typer.Typer(
    name="spanloop",
    help="Spans in, better agents out.\n\n"
    "Start everything with `spanloop up`, run your app under `opentelemetry-instrument`, look at the dashboard, and "
    "train on what failed.\n\n"
    "Exit codes: 0 success, 1 the command failed, 2 invalid arguments or settings, 3 a service does not run or cannot "
    "start, 4 the data directory cannot be used, 5 ClickHouse is unreachable, 130 stopped by Ctrl-C.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


_DISK_FULL: Final = {errno.ENOSPC, errno.EDQUOT}


def _version(value: bool) -> None:
    if value:
        typer.echo(f"spanloop {version('spanloop')}")
        raise typer.Exit


@app.callback()
def _root(
    _: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")] = False,
) -> None: ...


app.command(rich_help_panel="Run")(up.up)
app.add_typer(serve.app, name="serve", rich_help_panel="Run")
app.command(rich_help_panel="Run")(status.status)
app.command(rich_help_panel="Run")(doctor.doctor)
app.command(rich_help_panel="Run")(instrument.instrument)
app.command(rich_help_panel="Run")(demo.demo)
app.add_typer(dead_letters.app, name="dead-letters", rich_help_panel="Run")
app.command(rich_help_panel="Run")(administration.forget)
app.command(rich_help_panel="Run")(administration.backup)
app.command(rich_help_panel="Run")(administration.restore)
app.command(rich_help_panel="Run")(administration.copy)
app.add_typer(keys.app, name="keys", rich_help_panel="Run")
app.add_typer(users.app, name="users", rich_help_panel="Run")
app.command(rich_help_panel="Run")(audit.audit)
app.add_typer(alerts.app, name="alerts", rich_help_panel="Run")
app.add_typer(redact.app, name="redact", rich_help_panel="Run")
app.command("import", rich_help_panel="Learn")(import_.import_)
app.add_typer(scores.app, name="scores", rich_help_panel="Learn")
app.add_typer(judge.app, name="judge", rich_help_panel="Learn")
app.add_typer(marks.app, name="marks", rich_help_panel="Learn")
app.add_typer(store.app, name="store", rich_help_panel="Learn")
app.command(rich_help_panel="Learn")(convert.convert)
app.command(rich_help_panel="Learn", cls=SpecCommand)(train.train)
app.command(rich_help_panel="Learn")(export.export)
app.add_typer(dataset.app, name="dataset", rich_help_panel="Learn")
app.command(rich_help_panel="Learn", cls=run_command.RunCommand)(run_command.run)
app.add_typer(run_command.app, name="runs", rich_help_panel="Learn")
app.command(rich_help_panel="Learn")(init.init)
app.command(rich_help_panel="Learn")(loop.loop)
app.command(rich_help_panel="Learn")(evaluate.evaluate)
app.add_typer(evaluations.app, name="evaluations", rich_help_panel="Learn")
app.add_typer(jobs.app, name="jobs", rich_help_panel="Learn")
app.add_typer(schedules.app, name="schedules", rich_help_panel="Learn")
app.command(rich_help_panel="Learn")(extensions.extensions)
app.command(rich_help_panel="Learn")(promotion.promote)
app.add_typer(canary.app, name="canary", rich_help_panel="Learn")
for command in (
    promotion.alias,
    promotion.decisions,
    promotion.rollback,
    promotion.prune,
    promotion.export,
):
    models.app.command()(command)
app.add_typer(models.app, name="models", rich_help_panel="Learn")
app.add_typer(spans.app, name="spans", rich_help_panel="Learn")


def run() -> None:
    """Run the command line and exit; print a ``SpanloopError`` as one message without a traceback."""
    # Without a handler, Python prints the log records of libraries on stderr.
    logging.getLogger().addHandler(logging.NullHandler())
    try:
        app(standalone_mode=True)
    except SpanloopError as error:
        _fail(error)
    except OSError as error:
        if error.errno not in _DISK_FULL:
            raise
        file = f" for {error.filename}" if error.filename else ""
        _fail(DataDirectoryError(f"No space is left{file}.", next_step="Free disk space, then run the command again."))


def _fail(error: SpanloopError) -> NoReturn:
    print_error(error)
    sys.exit(error.exit_code)
