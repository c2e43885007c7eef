"""Display the stages of the tiny demo and of benchmarks."""

import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.markup import escape

from spanloop.cli.console import err, markup_text

if TYPE_CHECKING:
    from rich.status import Status


class StageDisplay:
    """Prints a spinner while a stage runs, and one line with its time when it is finished."""

    def __init__(self) -> None:
        self._started_s = time.monotonic()
        self.notes: list[str] = []
        self._spinner: Status | None = None
        self._title = ""

    @property
    def elapsed_s(self) -> float:
        """Seconds since the demo began."""
        return time.monotonic() - self._started_s

    @contextmanager
    def stage(self, title: str) -> Generator[None]:
        """Display and time the block; its notes are added to the line."""
        started_s = time.monotonic()
        self.notes.clear()
        with err.status(markup_text(title)) as spinner:
            self._spinner, self._title = spinner, title
            try:
                yield
            except KeyboardInterrupt:
                spinner.stop()
                err.print("stopping what was started")
                raise
            finally:
                self._spinner = None
        note = f" [dim]({'; '.join(self.notes)})[/dim]" if self.notes else ""
        err.print(f"[green]✓[/green] {title}{note} [dim]{time.monotonic() - started_s:.1f} s[/dim]")

    def progress(self, text: str) -> None:
        """Display the progress of the running stage; on a terminal only."""
        if self._spinner is not None:
            self._spinner.update(markup_text(f"{self._title}: [dim]{escape(text)}[/dim]"))

    def note(self, text: str) -> None:
        """Add a note to the running stage's line."""
        self.notes.append(text)
