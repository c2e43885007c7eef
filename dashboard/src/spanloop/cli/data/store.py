"""``spanloop store``: copy spans out of another ClickHouse, and set the retention of the store."""

import time
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from spanloop.runtime.command_line import command_line

from ..console import err, print_table, progress_bar
from ..options import DataDirOption, data_directory

if TYPE_CHECKING:
    from spanloop.collector.redaction.redactor import Redactor
    from spanloop.importing import ForeignLogs, ForeignTable, Report
    from spanloop.store import Store

app = typer.Typer(help="Read spans from an existing ClickHouse, and set how long spans are kept.", no_args_is_help=True)


@app.callback()
def _store() -> None: ...


@app.command()
def attach(
    url: Annotated[
        str,
        typer.Argument(
            envvar="SPANLOOP_ATTACH_URL",
            metavar="URL",
            help="The exporter's ClickHouse: http(s)://user:password@host:port/database. Read access is enough.",
        ),
    ],
    table: Annotated[str, typer.Option(help="The exporter's traces table.")] = "otel_traces",
    logs_table: Annotated[
        str | None,
        typer.Option(help="Also read messages, exceptions and evaluations from this log table, such as otel_logs."),
    ] = None,
    since: Annotated[
        datetime | None, typer.Option(help="Read spans that started since then (UTC).", show_default="the last run")
    ] = None,
    follow: Annotated[
        float | None, typer.Option(min=0.1, metavar="SECONDS", help="Keep running, and read new rows at this interval.")
    ] = None,
    data_dir: DataDirOption = None,
) -> None:
    """Copy spans from the ClickHouse tables of an OpenTelemetry Collector's ClickHouse exporter.

    Reads every trace with a model call from the exporter's table (its Map variant), and changes nothing there. The next
    run reads only new rows. Put the URL into SPANLOOP_ATTACH_URL to keep its password out of the shell's history.

    Example: `spanloop store attach http://reader@otel-db:8123/otel --logs-table otel_logs --follow 30`
    """
    from spanloop.collector.redaction.redactor import Redactor
    from spanloop.collector.redaction.rules import load_rules
    from spanloop.importing import ForeignLogs, ForeignTable
    from spanloop.store import connect

    directory = data_directory(data_dir)
    redactor = Redactor(load_rules(directory))
    start = None if since is None else since.replace(tzinfo=UTC) if since.tzinfo is None else since
    with ExitStack() as stack:
        sources: list[ForeignTable | ForeignLogs] = [stack.enter_context(ForeignTable(url, table))]
        if logs_table is not None:
            sources.append(stack.enter_context(ForeignLogs(url, logs_table)))
        store = stack.enter_context(connect(directory, start=True))
        for source in sources:
            report = _read_new(source, store, redactor, start)
            rows = [
                ("new", f"{sum(report.new.values()):,}"),
                ("already there", f"{sum(report.known.values()):,}"),
                *((f"rejected: {reason}", f"{count:,}") for reason, count in sorted(report.rejected.items())),
            ]
            print_table(("spans" if source is sources[0] else "log records", "count"), rows, numbers=("count",))
        err.print(f"a running spanloop converts them; else run: {command_line('convert', directory)}", markup=False)
        while follow is not None:
            time.sleep(follow)
            for source in sources:
                for kind, count in _read_new(source, store, redactor, None).new.items():
                    if count:
                        err.print(f"{datetime.now(UTC):%H:%M:%S} {count:,} new {kind}", markup=False)


@app.command()
def retention(
    period: Annotated[
        str | None, typer.Argument(metavar="[PERIOD]", help="Days, such as 90d, or keep; default: show the period.")
    ] = None,
    data_dir: DataDirOption = None,
) -> None:
    """Set or show how long spans and log records are kept; the default is for ever.

    The period counts from the time of reception. ClickHouse deletes older rows automatically, some hours later.
    Episodes, transitions and scores stay.

    Example: `spanloop store retention 90d`
    """
    from spanloop.administration.retention import FOR_EVER, read_period, set_retention
    from spanloop.administration.retention import retention as retention_days
    from spanloop.store import connect

    days = None if period is None else read_period(period)
    with connect(data_directory(data_dir), start=True) as store:
        if days is not None:
            set_retention(store, days)
        current_days = retention_days(store)
    period_text = "for ever" if current_days == FOR_EVER else f"for {current_days} days"
    err.print(f"spans and log records are kept {period_text}", markup=False)


def _read_new(
    source: "ForeignTable | ForeignLogs", store: "Store", redactor: "Redactor", since: datetime | None
) -> "Report":
    with progress_bar() as bar:
        task = bar.add_task("reading", total=None, note="")
        return source.read_new(
            store,
            since=since,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
            redactor=redactor,
        )
