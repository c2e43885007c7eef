"""One call on its way to the champion or to the candidate of a canary.

Invariant: a call that the candidate failed is the champion's from then on. It counts as an error of the candidate only
if the champion answered it.
"""

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from typing import Final

from ..engine.admission import ANYONE, AdmissionControl, Caller
from ..engine.gate import EngineSlot
from .candidate import Candidate

_UNCOUNTED: Final = frozenset({"no_canary", "serving_paused", "shutting_down"})
"""Codes of rejections that are no failure of the candidate."""


class Arm(StrEnum):
    """Where a session belongs."""

    CANDIDATE = "candidate"
    CHAMPION = "champion"


@dataclass(slots=True)
class RoutedCall:
    """Which version answers one call."""

    champion: AdmissionControl
    candidate: Candidate | None = None
    session: str = ""
    arm: Arm | None = None
    """None for a call that a canary does not compare."""
    failure: str = ""
    """Why the candidate did not answer."""
    is_counted: bool = True
    shadow: Candidate | None = None
    """Gets a copy of the call when the champion has answered."""

    @property
    def uses_candidate(self) -> bool:
        """Whether the candidate is to answer."""
        return self.candidate is not None and self.arm is not Arm.CHAMPION and not self.failure

    @property
    def may_fall_back(self) -> bool:
        """Whether the champion answers when the candidate fails; not for a call that names the candidate's version."""
        return self.uses_candidate and self.arm is Arm.CANDIDATE

    @property
    def is_held(self) -> bool:
        """Whether the version that answers admits nothing now."""
        if self.candidate is not None and self.uses_candidate:
            return self.candidate.admission.is_held
        return self.champion.is_held

    def admit(self, model: str, caller: Caller = ANYONE) -> AbstractAsyncContextManager[EngineSlot]:
        """Allow a block to use the version that answers; it raises as `AdmissionControl.admit`."""
        if self.candidate is not None and self.uses_candidate:
            return self.candidate.admit()
        return self.champion.admit(model, caller)

    def fall_back(self, failure: str, *, code: str | None = None) -> None:
        """Let the champion answer, because the candidate failed."""
        self.failure = failure
        self.is_counted = code not in _UNCOUNTED

    def error(self, status: int, code: str) -> str:
        """Return the error that counts against the call's arm; empty without one.

        Args:
            status: HTTP status of the answer.
            code: Of the error event that ended a stream; empty for none.
        """
        if self.failure and self.is_counted and status == HTTPStatus.OK:
            return self.failure
        if code == "engine_lost":
            return code
        return f"status {status}" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else ""
