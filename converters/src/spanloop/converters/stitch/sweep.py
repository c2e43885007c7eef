"""Which call continues which: one sweep over time for each rule, first within a home, then across traces.

Invariant: every call continues at most one other, and the choice depends on times and ids only. Among several
candidates the newest that had ended and that nobody continued wins; if all are taken, the newest is continued once
more (a branch: a retry, or several samples); if none had ended (skewed clocks), the earliest. Linear after sorting.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from ..spans import Span
from .base import Key, StitchRule

SpanKey = tuple[str, str]

_SEVERAL: Final = 2

_LONGEST_NS: Final = 30 * 60 * 1_000_000_000
"""How long ago a call may have ended that can still be the only one: what a pipeline sees of others' calls."""


class Continuations:
    """Who continues whom, found rule by rule."""

    def __init__(self) -> None:
        self.parents: dict[SpanKey, SpanKey] = {}
        self._claimed: set[SpanKey] = set()

    def match(self, rule: StitchRule, calls: Sequence[Span], scopes: Sequence[Callable[[Span], str]]) -> None:
        """Find a predecessor, by one rule, for every call that has none yet.

        Args:
            rule: Names the keys.
            calls: In the order of start and id.
            scopes: One sweep each, in this order. Calls meet only within one scope; an empty scope takes no part.
        """
        waiting = [
            (call, keys) for call in calls if call.key not in self.parents and (keys := list(rule.awaited(call)))
        ]
        wanted = {key for _, keys in waiting for key in keys}
        if not wanted:
            return
        produced = [(call, key) for call in calls for key in dict.fromkeys(rule.produced(call)) if key in wanted]
        for scope in scopes:
            self._sweep(waiting, produced, scope, needs_only_one=rule.needs_only_one)
            waiting = [(call, keys) for call, keys in waiting if call.key not in self.parents]
            if not waiting:
                return

    def _sweep(
        self,
        waiting: Iterable[tuple[Span, Sequence[Key]]],
        produced: Iterable[tuple[Span, Key]],
        scope: Callable[[Span], str],
        *,
        needs_only_one: bool,
    ) -> None:
        producers: dict[tuple[str, Key], list[Span]] = defaultdict(list)
        for call, key in produced:
            if room := scope(call):
                producers[room, key].append(call)
        buckets = {key: _Bucket(found) for key, found in producers.items()}
        for call, keys in waiting:
            room = scope(call)
            if not room:
                continue
            for key in keys:
                bucket = buckets.get((room, key))
                if bucket is None:
                    continue
                found = (bucket.take_only if needs_only_one else bucket.take)(call, self._claimed)
                if found is not None:
                    self.parents[call.key] = found.key
                    self._claimed.add(found.key)
                    break


class _Bucket:
    """The producers of one key; one of ``take`` and ``take_only`` must be called, in the order of start."""

    def __init__(self, producers: Iterable[Span]) -> None:
        waiting = list(producers)
        self._waiting = sorted(waiting, key=lambda span: (span.end_ns, span.key)) if len(waiting) > 1 else waiting
        self._position = 0
        self._free: list[Span] = []
        self._newest: Span | None = None

    def _advance(self, call: Span) -> None:
        while self._position < len(self._waiting) and self._waiting[self._position].end_ns <= call.start_ns:
            self._free.append(self._waiting[self._position])
            self._position += 1

    def take_only(self, call: Span, claimed: set[SpanKey]) -> Span | None:
        """The one that had ended, not too long ago, and that nobody continued; None where there are several."""
        self._advance(call)
        found: list[Span] = []
        while self._free and len(found) < _SEVERAL:
            candidate = self._free.pop()
            if candidate.key not in claimed and candidate.end_ns > call.start_ns - _LONGEST_NS:
                found.append(candidate)
        self._free += reversed(found)
        return found[0] if len(found) == 1 and found[0].key != call.key else None

    def take(self, call: Span, claimed: set[SpanKey]) -> Span | None:
        self._advance(call)
        while self._free:
            found = self._free.pop()
            if found.key != call.key:
                self._newest = found
                if found.key not in claimed:
                    return found
        if self._newest is not None and self._newest.key != call.key:
            return self._newest
        return self._earliest_other(call, claimed)

    def _earliest_other(self, call: Span, claimed: set[SpanKey]) -> Span | None:
        """Clocks disagree: a producer that ended late, provided that its input is shorter (it cannot follow)."""
        for found in self._waiting[self._position : self._position + 8]:
            if found.key != call.key and found.key not in claimed and len(found.input) < len(call.input):
                return found
        return None


def roots_first(calls: Sequence[Span], parents: Mapping[SpanKey, SpanKey]) -> list[Span]:
    """The calls, each after the one that it continues, otherwise in the order of ``calls``.

    A call's place is its own start, or just after its predecessor's when its clock ran ahead.
    """
    known = {call.key: call for call in calls}
    above = ((call, known.get(parents.get(call.key, ("", "")))) for call in calls)
    if all(parent is None or parent.start_ns < call.start_ns for call, parent in above):
        return sorted(calls, key=lambda call: (call.start_ns, call.key))
    place: dict[SpanKey, tuple[int, int]] = {}
    for call in calls:
        path: list[Span] = []
        current: Span | None = call
        while current is not None and current.key not in place:
            place[current.key] = (current.start_ns, 0)
            path.append(current)
            current = known.get(parents.get(current.key, ("", "")))
        for member in reversed(path):
            before = place.get(parents.get(member.key, ("", "")))
            if before is not None and (member.start_ns, 0) <= before:
                place[member.key] = (before[0], before[1] + 1)
    return sorted(calls, key=lambda call: (*place[call.key], call.key))
