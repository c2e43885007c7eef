"""The timeline of a loop in the terminal: step n of m, time left, success with its interval, decisions."""

import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from rich.markup import escape

from ..console import err, markup_text, print_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.status import Status

    from spanloop.evaluation.results.bootstrap import Interval
    from spanloop.training.loop.progress import RunningStep
    from spanloop.training.loop.rounds import LoopRound, StepRecord

_MINUTE_S: Final = 60
_HOUR_S: Final = 3_600
_SHOW_EVERY_S: Final = 30.0
"""Between two lines of a running step where stderr is no terminal."""


def duration_text(seconds: float) -> str:
    """Return a duration such as ``40 s``, ``12 min`` or ``3.5 h``."""
    if seconds < 2 * _MINUTE_S:
        return f"{seconds:.0f} s"
    return f"{seconds / _MINUTE_S:.0f} min" if seconds < 2 * _HOUR_S else f"{seconds / _HOUR_S:.1f} h"


def _interval(values: "Sequence[float]") -> "Interval":
    from spanloop.evaluation.results.bootstrap import Interval

    return Interval(*values)


class LoopDisplay:
    """Prints a status line while a step runs, and one line when it is finished."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spinner: Status | None = None
        self._step: RunningStep | None = None
        self._began_s = self._shown_s = 0.0
        self._detail = ""
        self._share = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop()

    def preparing(self, text: str) -> None:
        """Show what is done before the first step."""
        if not err.is_terminal:
            err.print(text, markup=False)
        elif self._spinner is None:
            self._spinner = err.status(markup_text(escape(text)))
            self._spinner.start()
        else:
            self._spinner.update(markup_text(escape(text)))

    def started(self, step: "RunningStep") -> None:
        """Show a step."""
        self._stop()
        self._step, self._began_s, self._shown_s = step, time.monotonic(), time.monotonic()
        self._detail, self._share = "", 0.0
        if err.is_terminal:
            self._spinner = err.status(markup_text(escape(self._line())))
            self._spinner.start()
        else:
            err.print(self._line(), markup=False)

    def progressed(self, done: int, total: int, text: str) -> None:
        """Show how far the step is."""
        with self._lock:
            self._detail = f"{done:,} of {total:,} {text}".strip() if total else text
            self._share = done / total if total else 0.0
            if self._spinner is not None:
                self._spinner.update(markup_text(escape(self._line())))
            elif time.monotonic() - self._shown_s > _SHOW_EVERY_S:
                self._shown_s = time.monotonic()
                err.print(self._line(), markup=False)

    def finished(self, step: "RunningStep", record: "StepRecord", *, was_done: bool) -> None:
        """Print the line of a finished step."""
        self._stop()
        result = f": {text}" if (text := result_text(record)) else ""
        seconds = "done before" if was_done else duration_text(record.seconds)
        err.print(f"[green]✓[/green] {escape(_position(step))} {escape(step.title + result)} [dim]({seconds})[/dim]")

    def ended(self, ended: "LoopRound") -> None:
        """Print how a round ended."""
        self._stop()
        if ended.outcome is not None:
            err.print(
                f"round {ended.number}: {ended.candidate or ended.champion} {ended.outcome}: {ended.reason}",
                markup=False,
            )

    def note(self, text: str) -> None:
        """Print a note."""
        err.print(text, markup=False)

    def interrupted(self) -> None:
        """Say what happens after Ctrl-C."""
        self._stop()
        err.print("stopped; what was done is stored, and the same command continues. A training job goes on meanwhile")

    def _stop(self) -> None:
        if self._spinner is not None:
            self._spinner.stop()
            self._spinner = None

    def _line(self) -> str:
        step = self._step
        if step is None:
            return ""
        detail = f": {self._detail}" if self._detail else ""
        left = self._left_text(step)
        return f"{_position(step)} {step.title}{detail}{f' · {left}' if left else ''}"

    def _left_text(self, step: "RunningStep") -> str:
        """Return the time left: of the step by its own speed, else by earlier ones."""
        elapsed_s = time.monotonic() - self._began_s
        left_s = None if step.expected_s is None else max(0.0, step.expected_s - elapsed_s)
        if self._share > 0.1:
            left_s = elapsed_s / self._share * (1 - self._share)
        if left_s is None:
            return f"{duration_text(elapsed_s)} so far"
        if step.rest_s is None:
            return f"{duration_text(left_s)} left of this step"
        return f"{duration_text(left_s + step.rest_s)} left"


def _position(step: "RunningStep") -> str:
    total = f"step {step.number} of {step.total}" if step.total else f"step {step.number}"
    return f"[{total}, round {step.round_number}]"


def result_text(record: "StepRecord") -> str:
    """Return what a finished step found."""
    result = record.result or {}
    if "success" in result:
        success = _interval(result["success"])
        return f"success {success.text('.0f', scale=100, unit=' %')} on {result['tasks']:,} tasks"
    if "attempts" in result:
        graded = f", {result['successes'] / result['graded']:.0%} succeed" if result.get("graded") else ""
        return f"{result['attempts']:,} attempts{graded}" if result["attempts"] else "trained on demonstrations alone"
    if "candidate" in result:
        return f"{result['candidate']} by {result['job']}"
    return str(result.get("outcome", ""))


def print_rounds(rounds: "Sequence[LoopRound]") -> None:
    """Print all rounds of a loop."""
    from spanloop.training.loop.rounds import StepName

    def success(number: "LoopRound", name: "StepName") -> str:
        result = number.step(name).result
        return _interval(result["success"]).text(".0f", scale=100, unit=" %") if result and "success" in result else ""

    print_table(
        ("round", "champion", "success", "candidate", "its success", "decision", "time", "tokens"),
        [
            (
                str(each.number),
                each.champion,
                success(each, StepName.MEASURE),
                each.candidate,
                success(each, StepName.TEST),
                each.outcome or "open",
                duration_text(each.seconds),
                f"{each.tokens:,}",
            )
            for each in rounds
        ],
        numbers=("round", "tokens"),
    )
