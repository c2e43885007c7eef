"""``spanloop convert``: spans in the store become transitions in the store."""

from datetime import datetime
from typing import Annotated

import typer

from spanloop.semconv.environment import CONVERT_MEMORY_ENV

from .console import err, print_table, progress_bar
from .options import DataDirOption, data_directory


def convert(
    data_dir: DataDirOption = None,
    full: Annotated[bool, typer.Option("--full", help="Convert everything again, not only what is new.")] = False,
    since: Annotated[
        datetime | None, typer.Option(help="Convert again what came in since then, UTC, besides what is new.")
    ] = None,
    memory_mib: Annotated[
        int,
        typer.Option(
            min=1,
            envvar=CONVERT_MEMORY_ENV,
            help="About what it may need. Of an episode that does not fit, the beginning is converted.",
        ),
    ] = 2_048,
) -> None:
    """Turn new spans into episodes, transitions, token trajectories and attributed failures.

    A running spanloop (spanloop up) does this by itself every few seconds; this is for a store that nobody watches,
    or with --full after an update. Running it twice changes nothing.

    Example: `spanloop convert --full`
    """
    from spanloop.pipeline import run
    from spanloop.store import connect

    with connect(data_directory(data_dir), start=True) as store, progress_bar() as bar:
        task = bar.add_task("converting", total=None, note="")
        report = run(
            store,
            full=full,
            since=since,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
            memory_bytes=memory_mib << 20,
        )
    names = ("spans", "episodes", "transitions", "trajectories", "failures", "trainable")
    rows = [(name, f"{getattr(report, name):,}") for name in names]
    # A row that begins where its agent did is as it should be.
    begun = {why: count for why, count in report.row_starts.items() if why != "first"}
    titled = (("token row begins", begun), ("untrainable", report.untrainable), ("rejected", report.rejected))
    for title, reasons in titled:
        rows += [(f"{title}: {reason}", f"{count:,}") for reason, count in sorted(reasons.items())]
    print_table(("converted", "count"), rows, numbers=("count",))
    if not report.spans:
        err.print("no new spans; run an app under opentelemetry-instrument while spanloop is up")
