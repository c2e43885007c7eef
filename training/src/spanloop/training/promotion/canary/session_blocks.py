"""An anytime-valid comparison of two versions that serve different sessions.

Sessions form blocks in the order of their start: a block ends as soon as it has a session of both versions. Its
difference, the candidate's mean value minus the champion's, has the difference of the versions' means as its mean, at
any share of the sessions and when both drift alike. So the differences of blocks go through the sequential test.

Invariant: each session counts in one block. Which block that is depends on the order of the sessions and on who served
them, never on their values. A state has sums only: it can be stored after a look, and the next look continues from it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, Self

from ..sequential import SequentialTest


class Session(NamedTuple):
    """One session, served by one version from its begin to its end."""

    is_candidate: bool
    value: float
    """Of the metric, scaled to [0, 1]."""


class Arm(NamedTuple):
    """Sums over sessions of one version."""

    sessions: int = 0
    total: float = 0.0

    @property
    def mean(self) -> float:
        """Of the values; 0 without a session."""
        return self.total / self.sessions if self.sessions else 0.0

    def with_value(self, value: float) -> "Arm":
        """Return the sums with one more value."""
        return Arm(self.sessions + 1, self.total + value)


_NO_SESSION: Final = Arm()


@dataclass(frozen=True, slots=True)
class CanaryTest:
    """Evidence about a candidate and a champion after a number of sessions."""

    better: SequentialTest
    """That the candidate is better than the champion by more than the margin."""
    worse: SequentialTest
    """That it is worse by more than the tolerance."""
    candidate: Arm = _NO_SESSION
    """All sessions of the candidate."""
    champion: Arm = _NO_SESSION
    open_candidate: Arm = _NO_SESSION
    """Sessions of the block that has not ended."""
    open_champion: Arm = _NO_SESSION

    @classmethod
    def start(cls, *, margin: float = 0.0, tolerance: float = 0.0) -> Self:
        """Return the state before the first session.

        Args:
            margin: By how much the candidate must be better; at least 0.
            tolerance: By how much it may be worse; at least 0.
        """
        return cls(SequentialTest(margin), SequentialTest(tolerance))

    def update(self, sessions: Iterable[Session]) -> Self:
        """Return the state after further sessions.

        Args:
            sessions: In the order of their start.

        Raises:
            ValueError: A value is outside [0, 1] or no number.
        """
        state, differences, weights = self, list[float](), list[float]()
        for session in sessions:
            if not 0 <= session.value <= 1:
                raise ValueError(f"session value {session.value}: expected a number from 0 to 1")
            state = state._with_session(session)
            ours, theirs = state.open_candidate, state.open_champion
            if ours.sessions and theirs.sessions:
                differences.append(ours.mean - theirs.mean)
                # the precision of a difference of two means; a block of one and one session has 1/2
                weights.append(ours.sessions * theirs.sessions / (ours.sessions + theirs.sessions))
                state = replace(state, open_candidate=_NO_SESSION, open_champion=_NO_SESSION)
        return replace(
            state,
            better=self.better.update(differences, weights),
            worse=self.worse.update([-difference for difference in differences], weights),
        )

    def _with_session(self, session: Session) -> Self:
        if session.is_candidate:
            return replace(
                self,
                candidate=self.candidate.with_value(session.value),
                open_candidate=self.open_candidate.with_value(session.value),
            )
        return replace(
            self,
            champion=self.champion.with_value(session.value),
            open_champion=self.open_champion.with_value(session.value),
        )
