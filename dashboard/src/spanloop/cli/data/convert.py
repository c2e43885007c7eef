"""``spanloop convert``: convert stored spans into episodes and transitions."""

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from spanloop.semconv.environment import CONFIG_ENV, CONVERT_MEMORY_ENV

from ..console import err, print_table, progress_bar
from ..options import DataDirOption, data_directory


def convert(
    data_dir: DataDirOption = None,
    full: Annotated[bool, typer.Option("--full", help="Convert all spans again, not only new ones.")] = False,
    since: Annotated[
        datetime | None, typer.Option(help="Also convert spans again that were received since this time (UTC).")
    ] = None,
    memory_mib: Annotated[
        int,
        typer.Option(
            min=1,
            envvar=CONVERT_MEMORY_ENV,
            help="Approximate memory limit. Only the beginning of an episode that does not fit is converted.",
        ),
    ] = 2_048,
    config: Annotated[
        Path | None, typer.Option(envvar=CONFIG_ENV, help="Configuration file; default: spanloop.toml, if it exists.")
    ] = None,
) -> None:
    """Convert new spans into episodes, transitions, token trajectories and attributed failures.

    A running spanloop (`spanloop up`) does this automatically every few seconds. Use the command on a stopped store, or
    with --full after an update. Running it twice changes nothing.

    Example: `spanloop convert --full`
    """
    from spanloop.pipeline import run
    from spanloop.pipeline.conversion_settings import conversion_settings
    from spanloop.store import connect

    directory = data_directory(data_dir)
    conversion = conversion_settings(directory.path, config)
    with connect(directory, start=True) as store, progress_bar() as bar:
        task = bar.add_task("converting", total=None, note="")
        report = run(
            store,
            full=full,
            since=since,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
            memory_bytes=memory_mib << 20,
            options=conversion.options,
        )
    names = ("spans", "episodes", "transitions", "trajectories", "failures", "trainable")
    rows = [(name, f"{getattr(report, name):,}") for name in names]
    # Rows that begin at the first step of an agent need no reason.
    row_starts = {reason: count for reason, count in report.row_starts.items() if reason != "first"}
    sections = (("token row begins", row_starts), ("untrainable", report.untrainable), ("rejected", report.rejected))
    for title, reasons in sections:
        rows += [(f"{title}: {reason}", f"{count:,}") for reason, count in sorted(reasons.items())]
    rows += [(f"judge: {what}", f"{count:,}") for what, count in sorted(conversion.judge_counts.items())]
    if report.open_joins:
        rows.append(("traces that share an id and stay separate", f"{report.open_joins:,}"))
    print_table(("converted", "count"), rows, numbers=("count",))
    if not report.spans:
        err.print("no new spans; run an app under opentelemetry-instrument while spanloop is up")
