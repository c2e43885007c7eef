"""The command tree. Subcommands live in modules of their own and import the parts they need when they run."""

import sys
from importlib.metadata import version
from typing import Annotated

import typer

from spanloop.semconv.errors import SpanloopError

from . import convert, doctor, jobs, models, status, train, up
from .console import err
from .demo import command as demo

app = typer.Typer(
    name="spanloop",
    help="Spans in, better agents out.\n\n"
    "Start everything with `spanloop up`, run your app under `opentelemetry-instrument`, look at the dashboard, "
    "train on what failed.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"spanloop {version('spanloop')}")
        raise typer.Exit


@app.callback()
def _root(
    _: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")] = False,
) -> None: ...


app.command(rich_help_panel="Run")(up.up)
app.command(rich_help_panel="Run")(status.status)
app.command(rich_help_panel="Run")(doctor.doctor)
app.command(rich_help_panel="Run")(demo.demo)
app.command(rich_help_panel="Learn")(convert.convert)
app.command(rich_help_panel="Learn")(train.train)
app.add_typer(jobs.app, name="jobs", rich_help_panel="Learn")
app.add_typer(models.app, name="models", rich_help_panel="Learn")


def run() -> None:
    """Run the command line and exit; a ``SpanloopError`` is one message and its exit code, never a traceback."""
    try:
        app(standalone_mode=True)
    except SpanloopError as error:
        err.print(f"[bold red]error:[/bold red] {error.what}", markup=True)
        if error.next_step:
            err.print(f"  [bold]next:[/bold] {error.next_step}")
        sys.exit(error.exit_code)
