"""How the command line talks: results on stdout, everything else on stderr, so that output can be piped."""

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

out = Console(highlight=False, soft_wrap=True)
"""Results."""

err = Console(stderr=True, highlight=False, soft_wrap=True)
"""Progress, notes and errors."""


def progress_bar() -> Progress:
    """A progress display for work with a known or unknown number of steps."""
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=32),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=err,
    )
