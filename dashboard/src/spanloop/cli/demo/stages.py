"""Shows a long run stage by stage, with the time that each took."""

import time
from collections.abc import Generator
from contextlib import contextmanager

from ..console import err


class Stages:
    """Prints one line for each stage when it is done; a spinner meanwhile."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self.notes: list[str] = []

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
            try:
                yield
            except KeyboardInterrupt:
                spinner.stop()
                err.print("stopping what was started")
                raise
        note = f" [dim]({'; '.join(self.notes)})[/dim]" if self.notes else ""
        err.print(f"[green]✓[/green] {title}{note} [dim]{time.monotonic() - began_s:.1f} s[/dim]")

    def note(self, text: str) -> None:
        """Say something worth knowing about the running stage."""
        self.notes.append(text)
