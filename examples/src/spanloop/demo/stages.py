"""Shows a long run stage by stage, with the time that each took."""

import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.markup import escape

from spanloop.cli.console import err

if TYPE_CHECKING:
    from rich.status import Status


class Stages:
    """Prints one line for each stage when it is done; a spinner meanwhile."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self.notes: list[str] = []
        self._spinner: Status | None = None
        self._title = ""

    @property
    def elapsed_s(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self._began_s

    @contextmanager
    def stage(self, title: str) -> Generator[None]:
        """Time what happens inside; notes said meanwhile are added to the line."""
        began_s = time.monotonic()
        self.notes.clear()
        with err.status(title) as spinner:
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
        err.print(f"[green]✓[/green] {title}{note} [dim]{time.monotonic() - began_s:.1f} s[/dim]")

    def progress(self, text: str) -> None:
        """Say how far the running stage is; shown on a terminal until the stage is done."""
        if self._spinner is not None:
            self._spinner.update(f"{self._title}: [dim]{escape(text)}[/dim]")

    def note(self, text: str) -> None:
        """Say something worth knowing about the running stage."""
        self.notes.append(text)
