"""Choose tasks of a source: a named split, weights by type, and the pass rate of a version.

Invariant: the choice is a function of the tasks, the settings and the seed. A task is in the same split in every file,
and a choice of more tasks holds that of fewer. Memory grows with the number of chosen tasks, not with the source.
"""

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from itertools import islice
from typing import Final, NamedTuple

from spanloop.foundation.errors import ConfigurationError

from .task import Task

_DIGEST_BYTES: Final = 8
_SCALE: Final = 1 << (8 * _DIGEST_BYTES)
_SHOWN: Final = 8


class LeftOutReason(StrEnum):
    """Why a task is not chosen."""

    OTHER_SPLIT = "other_split"
    """It is in another split."""
    TYPE_WITHOUT_WEIGHT = "type_without_weight"
    """Its type has the weight 0, or none."""
    PASS_RATE = "pass_rate"  # noqa: S105 - no password
    """The version's pass rate is outside the range."""
    LIMIT = "limit"
    """Others were drawn."""


class PassRates(NamedTuple):
    """Pass rates of a version, and the range that is chosen."""

    by_task: Mapping[str, float]
    """Task id → share of its attempts that succeeded."""
    least: float
    most: float


@dataclass
class TaskSelection:
    """The choice; `choose` counts what it leaves out."""

    split: str = ""
    """The chosen split; empty chooses all tasks."""
    shares: Mapping[str, float] = field(default_factory=dict[str, float])
    """Split → share of the tasks, by a digest of their content; empty takes the split from a field."""
    split_field: str = "split"
    """The field that names a task's split."""
    weights: Mapping[str, float] = field(default_factory=dict[str, float])
    """Type → weight; empty weighs all tasks the same and draws none."""
    type_field: str = "type"
    """The field that names a task's type."""
    pass_rates: PassRates | None = None
    limit: int | None = None
    """Most tasks: the first ones, and with weights a draw."""
    seed: int = 0
    """Of the draw."""
    left_out: Counter[LeftOutReason] = field(default_factory=Counter[LeftOutReason])

    def __post_init__(self) -> None:
        if self.shares and self.split not in self.shares:
            raise ConfigurationError(
                f"There is no split {self.split!r}; the splits are: {', '.join(self.shares)}.",
                next_step="Name one of them as split.",
            )
        values = [*self.shares.values(), *self.weights.values()]
        if any(not 0 <= value < math.inf for value in values) or sum(self.shares.values()) > 1 + 1e-9:
            raise ConfigurationError(
                f"Shares {dict(self.shares)} and weights {dict(self.weights)} cannot be used.",
                next_step="Give numbers of at least 0; the shares of the splits add up to at most 1.",
            )

    def choose(self, tasks: Iterable[Task]) -> Iterator[Task]:
        """Yield the chosen tasks in their order.

        Raises:
            ConfigurationError: No task has the split, or a type with a weight.
        """
        seen: dict[str, Counter[str]] = {"split": Counter(), "type": Counter()}
        eligible = self._eligible(tasks, seen)
        is_empty = True
        chosen = self._drawn(eligible) if self.weights else islice(eligible, self.limit)
        for task in chosen:
            is_empty = False
            yield task
        if is_empty:
            self._check_found(seen)

    def _eligible(self, tasks: Iterable[Task], seen: Mapping[str, Counter[str]]) -> Iterator[Task]:
        for task in tasks:
            if self.split:
                split = self._split_of(task)
                seen["split"][split] += 1
                if split != self.split:
                    self.left_out[LeftOutReason.OTHER_SPLIT] += 1
                    continue
            if self.weights:
                kind = str(task.fields.get(self.type_field, ""))
                seen["type"][kind] += 1
                if not self.weights.get(kind):
                    self.left_out[LeftOutReason.TYPE_WITHOUT_WEIGHT] += 1
                    continue
            if not self._passes(task):
                self.left_out[LeftOutReason.PASS_RATE] += 1
                continue
            yield task

    def _split_of(self, task: Task) -> str:
        if not self.shares:
            return str(task.fields.get(self.split_field, ""))
        place, end = _uniform("split", task.digest), 0.0
        for name, share in self.shares.items():
            end += share
            if place < end:
                return name
        return ""

    def _passes(self, task: Task) -> bool:
        """Whether the pass rate is in the range; a task that was not attempted is."""
        if self.pass_rates is None:
            return True
        rate = self.pass_rates.by_task.get(task.id)
        return rate is None or self.pass_rates.least <= rate <= self.pass_rates.most

    def _drawn(self, tasks: Iterable[Task]) -> Iterator[Task]:
        """Draw ``limit`` tasks without replacement, by weight (Efraimidis and Spirakis 2006, algorithm A-Res)."""
        best: list[tuple[float, int, Task]] = []
        for position, task in enumerate(tasks):
            weight = self.weights[str(task.fields.get(self.type_field, ""))]
            key = math.log(_uniform(str(self.seed), task.digest) + 1 / _SCALE) / weight
            if self.limit is None or len(best) < self.limit:
                heapq.heappush(best, (key, -position, task))
            else:
                heapq.heappushpop(best, (key, -position, task))
                self.left_out[LeftOutReason.LIMIT] += 1
        for _, _, task in sorted(best, key=lambda entry: -entry[1]):
            yield task

    def _check_found(self, seen: Mapping[str, Counter[str]]) -> None:
        for what, chosen, place in (
            ("split", {self.split} if self.split else set[str](), "a digest" if self.shares else self.split_field),
            ("type", {name for name, weight in self.weights.items() if weight}, self.type_field),
        ):
            found = seen[what]
            if chosen and found and not chosen & found.keys():
                values = ", ".join(repr(name) for name, _ in found.most_common(_SHOWN))
                raise ConfigurationError(
                    f"No task has a {what} of {', '.join(map(repr, sorted(chosen)))} (field {place!r}); there are: "
                    f"{values}.",
                    next_step=f"Correct the {what}, or name the field that holds it.",
                )


def _uniform(salt: str, digest: str) -> float:
    """Return a number from 0 to 1, exclusive, that is the same for equal content."""
    return int.from_bytes(sha256(f"{salt}/{digest}".encode()).digest()[:_DIGEST_BYTES]) / _SCALE
