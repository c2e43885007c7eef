"""Print results on stdout and everything else on stderr, so that output can be piped.

Text from outside (names, paths, error texts) must not be parsed as markup, or a ``[train]`` in it would vanish: print
it with ``markup=False`` or through ``escape``. No text has emoji codes, or the id ``swe-bench:lock:17`` would have a
lock: `markup_text` is for the displays that the consoles' ``emoji=False`` does not reach.
"""

import sys
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from spanloop.foundation.errors import SpanloopError

_PIPE_WIDTH: Final = 4_096
"""Width of an output that is not a terminal: programs need whole ids."""

out = Console(highlight=False, emoji=False, soft_wrap=True, width=None if sys.stdout.isatty() else _PIPE_WIDTH)
"""For results."""

err = Console(stderr=True, highlight=False, emoji=False, soft_wrap=True)
"""For progress, notes and errors."""


def print_table(titles: "Sequence[str]", rows: "Iterable[Sequence[str]]", *, numbers: "Sequence[str]" = ()) -> None:
    """Print rows on stdout. The first column is never wrapped, because users copy it.

    Args:
        titles: The column titles as plain text.
        rows: The cells as plain text.
        numbers: The titles of right-aligned columns.
    """
    table = Table(box=None, pad_edge=False, header_style="dim")
    for index, title in enumerate(titles):
        table.add_column(
            escape(title), no_wrap=index == 0, overflow="fold", justify="right" if title in numbers else "left"
        )
    for row in rows:
        table.add_row(*map(escape, row))
    out.print(table)


def markup_text(markup: str) -> Text:
    """Return the text of a spinner, which would read emoji codes in a string."""
    return Text.from_markup(markup, emoji=False)


def print_error(error: "SpanloopError") -> None:
    """Print the error and its next step on stderr."""
    err.print(f"[bold red]error:[/bold red] {escape(error.what)}")
    if error.next_step:
        err.print(f"  [bold]next:[/bold] {escape(error.next_step)}")


def progress_bar() -> Progress:
    """Return a progress display for a known or unknown number of steps; it shows a task's ``note`` behind the bar."""
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}", markup=False),
        console=err,
    )
