"""The results of a run: one JSON file for all rows, from which the page is generated."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

RESULTS: Final = Path(__file__).resolve().parents[1] / "results.json"
SCENARIOS: Final = {
    "two tasks": "report",
    "streaming": "stream",
    "async": "async",
    "threads": "threads",
    "sub-agent": "delegate",
    "crash": "crash",
}
"""Column → the script of its tasks."""


class RowResult(NamedTuple):
    """What a row's run showed."""

    title: str
    version: str
    instrumentors: tuple[str, ...]
    cells: dict[str, str | None]
    """Column → what is missing; empty where everything is right, None where the app has no such task."""
    seconds: float
    note: str = ""
    is_javascript: bool = False
    gateway: dict[str, str | None] = {}  # noqa: RUF012  a default of a NamedTuple
    """Column of the run through the gateway → what is missing, as in `cells`; empty for apps that do not run there."""
    gateway_version: str = ""
    """The release that ran through the gateway."""
    served: str | None = None
    """What is missing in a chat with a real model through the gateway; None where it was not tried."""
    oldest: str = ""
    """The oldest release that was tried and is recorded completely; empty where only the newest one was tried."""

    @property
    def is_right(self) -> bool:
        """Whether nothing is missing."""
        results = self.cells | self.gateway | ({} if self.served is None else {"served model": self.served})
        return bool(results) and not any(results.values())


class Pending(NamedTuple):
    """The rows that a run of all rows has still to run: a killed run goes on there."""

    file: Path

    def start(self, names: list[str]) -> list[str]:
        """Return the rows that an earlier run left, else ``names``."""
        left: list[str] = json.loads(self.file.read_text()) if self.file.exists() else []
        self._write(left or names)
        return left or names

    def finish(self, name: str) -> None:
        """Take a row off the list."""
        if self.file.exists():
            self._write([left for left in json.loads(self.file.read_text()) if left != name])

    def _write(self, names: list[str]) -> None:
        self.file.parent.mkdir(exist_ok=True)
        self.file.write_text(json.dumps(names))


def lost(before: RowResult | None, now: RowResult) -> list[str]:
    """What an earlier run recorded and this one did not."""
    if before is None:
        return []
    return [
        f"{now.title} {now.version}: {column}: {results.get(column) or now.note}"
        for earlier, results in ((before.cells, now.cells), (before.gateway, now.gateway))
        for column, reason in earlier.items()
        if reason == "" and results.get(column) != ""
    ]


def load() -> dict[str, RowResult]:
    """Read the results of earlier runs, by row."""
    if not RESULTS.exists():
        return {}
    content: dict[str, dict[str, Any]] = json.loads(RESULTS.read_text())
    for row in content.values():
        row["instrumentors"] = tuple(row["instrumentors"])
    return {name: RowResult(**row) for name, row in content.items()}


def save(name: str, result: RowResult) -> None:
    """Store a row's result at once: a killed run loses only the row that it was at.

    The oldest release stays, and so does the chat with a real model.
    """
    earlier = load()
    before = earlier.get(name, result)
    _write(earlier | {name: result._replace(oldest=before.oldest, served=before.served)})


def save_served(name: str, reason: str) -> None:
    """Store what was missing in a row's chat with a real model; empty for nothing."""
    rows = load()
    _write(rows | {name: rows[name]._replace(served=reason)})


def save_oldest(name: str, version: str) -> None:
    """Store the oldest release of a row that is recorded completely."""
    rows = load()
    _write(rows | {name: rows[name]._replace(oldest=version)})


def _write(results: Mapping[str, RowResult]) -> None:
    rows = {key: row._asdict() for key, row in results.items()}
    partial = RESULTS.with_suffix(".partial")
    partial.write_text(json.dumps(dict(sorted(rows.items())), indent=1) + "\n")
    partial.replace(RESULTS)
