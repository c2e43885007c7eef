"""What a running loop tells its display."""

from typing import NamedTuple, Protocol

from .rounds import LoopRound, StepName, StepRecord


class RunningStep(NamedTuple):
    """The step that runs, and what is expected of it."""

    round_number: int
    name: StepName
    title: str
    number: int
    """From 1, over all rounds that this command runs."""
    total: int | None
    """Steps of all these rounds; None when nothing says how many rounds there will be."""
    expected_s: float | None
    """Duration by measurements of earlier steps; None without one."""
    rest_s: float | None
    """Expected duration of the steps after it that are known to follow; None while one was never measured."""


class LoopProgress(Protocol):
    """Gets what happens; called from several threads, one at a time."""

    def preparing(self, text: str) -> None:
        """Something is done before the first step: the model is fetched."""
        ...

    def started(self, step: RunningStep) -> None:
        """A step begins."""
        ...

    def progressed(self, done: int, total: int, text: str) -> None:
        """The running step has done ``done`` of ``total``; 0 of 0 when nothing is known."""
        ...

    def finished(self, step: RunningStep, record: StepRecord, *, was_done: bool) -> None:
        """A step is finished; ``was_done``: by an earlier process."""
        ...

    def ended(self, ended: LoopRound) -> None:
        """A round has its end."""
        ...

    def note(self, text: str) -> None:
        """The user should know ``text``."""
        ...
