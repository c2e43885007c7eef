"""Which traces a conversion of some concerns.

Invariant: what is built anew takes all of what it touches along: a trace that leaves an episode, or that joins one,
leaves nobody behind in an episode that is no more.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable


def transitive_traces(trace_ids: Iterable[str], groups: Iterable[Collection[str]]) -> frozenset[str]:
    """``trace_ids``, and all traces that ``groups`` of traces link to them, directly or by way of others."""
    groups_of: dict[str, list[Collection[str]]] = defaultdict(list)
    for group in groups:
        if len(group) > 1:
            for trace_id in group:
                groups_of[trace_id].append(group)
    transitive = set(trace_ids)
    waiting = list(transitive)
    while waiting:
        for group in groups_of.pop(waiting.pop(), ()):
            more = set(group) - transitive
            transitive |= more
            waiting += more
    return frozenset(transitive)
