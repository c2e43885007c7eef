"""Which call continues which: one sweep over time for each rule, first within a home, then across traces.

Invariant: every call continues at most one other, and the choice depends on times and ids only. Among several
candidates the newest that had ended and that nobody continued wins; if all are taken, the newest is continued once
more (a branch: a retry, or several samples); if none had ended (skewed clocks), the earliest. Linear after sorting.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from ..spans import Span
from .base import LONGEST_NS, UNIQUE, Call, IsUnique, Key, KeysOf, StitchRule
from .continuation import Evidence

SpanKey = tuple[str, str]
_Place = tuple[str, Key]
"""A part of the store (a home, a conversation or all traces) and a key."""

_SEVERAL: Final = 2

_MOST_SKEW_NS: Final = 2 * 60 * 1_000_000_000
"""Longest time by which a call may start after one of another trace that continues it, where clocks disagree."""


class Continuations:
    """Links from calls to the calls that they continue, matched rule by rule.

    Args:
        calls: In the order of start and id.
        is_unique: Whether an id names one thing in the whole store.
        parents: Call → the call that it continues, where a tool's result was written into its prompt.
    """

    def __init__(self, calls: Sequence[Call], is_unique: IsUnique, parents: Mapping[SpanKey, SpanKey]) -> None:
        self.parents: dict[SpanKey, SpanKey] = dict(parents)
        self.evidence: dict[SpanKey, Evidence] = dict.fromkeys(parents, Evidence.INSERTED_RESULT)
        """Call → why it continues another one."""
        self._claimed: set[SpanKey] = set(parents.values())
        self._waiting = [call for call in calls if call.may_continue and call.key not in self.parents]
        self._is_unique = is_unique
        self._has_conversations = any(call.conversation for call in calls)
        self._calls_by_anchor: dict[str | int, list[Call]] = defaultdict(list)
        """First element of a key → the calls whose output may leave such a key behind, by start."""
        for call in calls if self._waiting else ():
            anchors: set[str | int] = {
                *call.span.output_chain,
                call.span.history.number,
                *(request.id for request in call.emitted),
            }
            for anchor in anchors:
                self._calls_by_anchor[anchor].append(call)

    def match(self, rule: StitchRule) -> None:
        """Find a predecessor, by one rule, for every call that has none yet: in its home, else in another trace."""
        self._match(self._waiting, rule.produced, rule.awaited, rule, is_within_home=True)
        self._match(
            [call for call in self._waiting if call.is_traced],
            lambda call: rule.produced_across(call, self._is_unique),
            lambda call: rule.awaited_across(call, self._is_unique),
            rule,
            is_within_home=False,
        )

    def _match(
        self,
        waiting: Iterable[Call],
        produced_by: KeysOf,
        awaited_by: KeysOf,
        rule: StitchRule,
        *,
        is_within_home: bool,
    ) -> None:
        """One sweep. Calls meet only within one home; without homes, in all traces, and not long after each other.

        Across traces, a call with the unique id of a conversation meets calls of this conversation first, then those
        without such an id. Only a unique id of another kind joins two conversations.
        """
        buckets: dict[_Place, _Bucket] = {}
        known: set[str | int] = set()
        has_match = False
        for call in waiting:
            for place in _places(call, awaited_by(call), is_within_home=is_within_home):
                anchor = place[1][0]
                if anchor not in known:
                    known.add(anchor)
                    buckets.update(self._buckets(anchor, produced_by, is_within_home=is_within_home))
                bucket = buckets.get(place)
                if bucket is None:
                    continue
                above = (bucket.take_only if rule.needs_only_one else bucket.take)(call.span, self._claimed)
                if above is not None:
                    self.parents[call.key] = above.key
                    self.evidence[call.key] = rule.evidence
                    self._claimed.add(above.key)
                    has_match = True
                    break
        if has_match:
            self._waiting = [call for call in self._waiting if call.key not in self.parents]

    def _buckets(self, anchor: str | int, produced_by: KeysOf, *, is_within_home: bool) -> dict[_Place, "_Bucket"]:
        """The calls that leave keys with ``anchor`` behind, by place."""
        producers: dict[_Place, list[Span]] = defaultdict(list)
        for call in self._calls_by_anchor.get(anchor, ()):
            if is_within_home:
                parts = [call.home]
            elif call.is_traced:
                parts = [_ANY, call.conversation] if self._has_conversations else [_ANY]
            else:
                continue
            for key in dict.fromkeys(produced_by(call)):
                for part in parts if key[0] == anchor else ():
                    producers[part, key].append(call.span)
        return {
            place: _Bucket(spans, longest_ns=None if is_within_home or place[1][1] == UNIQUE else LONGEST_NS)
            for place, spans in producers.items()
        }


_ANY: Final = "*"
"""All conversations."""


def _places(call: Call, keys: Iterable[Key], *, is_within_home: bool) -> list[_Place]:
    """The keys, each in the parts of the store in which a predecessor is sought, best first."""
    if is_within_home:
        return [(call.home, key) for key in keys]
    if not call.conversation:
        return [(_ANY, key) for key in keys]
    conversations = (call.conversation, "")
    return [(part, key) for key in keys for part in ((_ANY,) if key[1] == UNIQUE else conversations)]


class _Bucket:
    """The producers of one key; one of ``take`` and ``take_only`` must be called, in the order of start."""

    def __init__(self, producers: Iterable[Span], *, longest_ns: int | None) -> None:
        self._longest_ns = longest_ns
        self._waiting = list(producers)
        if len(self._waiting) > 1:
            self._waiting.sort(key=lambda span: (span.end_ns, span.key))
        self._position = 0
        self._free: list[Span] = []
        self._newest: Span | None = None

    def _advance(self, call: Span) -> None:
        while self._position < len(self._waiting) and self._waiting[self._position].end_ns <= call.start_ns:
            self._free.append(self._waiting[self._position])
            self._position += 1

    def _is_skewed(self, candidate: Span, call: Span) -> bool:
        """Whether clocks that disagree a little explain that ``candidate`` ended after ``call`` had started."""
        return self._longest_ns is None or candidate.start_ns - call.start_ns < _MOST_SKEW_NS

    def _is_near(self, candidate: Span, call: Span) -> bool:
        """Whether ``candidate`` did not end too long before ``call`` started."""
        return self._longest_ns is None or candidate.end_ns > call.start_ns - self._longest_ns

    def take_only(self, call: Span, claimed: set[SpanKey]) -> Span | None:
        """The one that had ended, not too long ago, and that nobody continued; None where there are several."""
        self._advance(call)
        candidates: list[Span] = []
        while self._free and len(candidates) < _SEVERAL:
            candidate = self._free.pop()
            if candidate.key not in claimed and candidate.end_ns > call.start_ns - LONGEST_NS:
                candidates.append(candidate)
        self._free += reversed(candidates)
        return candidates[0] if len(candidates) == 1 and candidates[0].key != call.key else None

    def take(self, call: Span, claimed: set[SpanKey]) -> Span | None:
        self._advance(call)
        while self._free:
            candidate = self._free.pop()
            if candidate.key != call.key:
                self._newest = candidate
                if candidate.key not in claimed:
                    return candidate if self._is_near(candidate, call) else self._earliest_other(call, claimed)
        if self._newest is not None and self._newest.key != call.key and self._is_near(self._newest, call):
            return self._newest
        return self._earliest_other(call, claimed)

    def _earliest_other(self, call: Span, claimed: set[SpanKey]) -> Span | None:
        """Clocks disagree: a producer that ended late, provided that its input is shorter (it cannot follow)."""
        for candidate in self._waiting[self._position : self._position + 8]:
            if candidate.key in claimed or candidate.key == call.key or not self._is_skewed(candidate, call):
                continue
            if len(candidate.input) < len(call.input):
                return candidate
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
