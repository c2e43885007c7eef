"""``spanloop convert``: spans in the store become transitions in the store."""

from typing import Annotated

import typer

from .console import err, print_table, progress_bar
from .options import DataDirOption, data_directory


def convert(
    data_dir: DataDirOption = None,
    full: Annotated[bool, typer.Option("--full", help="Convert everything again, not only what is new.")] = False,
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
        report = run(store, full=full, progress=lambda done, total: bar.update(task, completed=done, total=total))
    names = ("spans", "episodes", "transitions", "trajectories", "failures", "trainable")
    rows = [(name, f"{getattr(report, name):,}") for name in names]
    for title, reasons in (("untrainable", report.untrainable), ("rejected", report.rejected)):
        rows += [(f"{title}: {reason}", f"{count:,}") for reason, count in sorted(reasons.items())]
    print_table(("converted", "count"), rows, numbers=("count",))
    if not report.spans:
        err.print("no new spans; run an app under opentelemetry-instrument while spanloop is up")
