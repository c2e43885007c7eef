"""Waits until what an agent did has arrived: acknowledged is on disk, queryable comes about a second later."""

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from spanloop.store import Store

_TIMEOUT_S: Final = 30.0
_POLL_S: Final = 0.2


class Outcome(NamedTuple):
    """The agent's own account of one attempt, as its report has it."""

    task_id: str
    reward: float
    response_ids: list[str]
    failed_calls: list[str]


def read_report(path: Path) -> list[Outcome]:
    """What an agent said of its attempts."""
    return [Outcome(**each) for each in json.loads(path.read_text())]


def wait_until_stored(store: "Store", reports: list[Path]) -> None:
    """Return when the store holds a span and a capture for each call in ``reports``, and a score for each attempt.

    After half a minute it returns all the same: what is missing is then for ``evidence`` to say.
    """
    outcomes = [outcome for report in reports for outcome in read_report(report)]
    calls = sum(len(outcome.response_ids) for outcome in outcomes)
    deadline_s = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < deadline_s:
        spans, captures, scores = store.query("demo_arrived").row(0)
        if spans >= calls and captures >= calls and scores >= len(outcomes):
            return
        time.sleep(_POLL_S)
