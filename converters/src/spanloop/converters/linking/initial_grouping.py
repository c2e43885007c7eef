"""Where a span belongs before any stitching: the app's own episode id, else its trace.

Invariant: a span never leaves the episode that the app named. A trace with one named episode belongs to it as a
whole; in a trace with several, a span without a name takes that of its nearest named ancestor. Cycles and missing
parents end the walk; a walk is remembered, so the whole is linear in the number of spans.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from ..spans import Span


def initial_groups(spans: Iterable[Span]) -> dict[tuple[str, str], str]:
    """Span key → home: ``e:<episode key>`` or ``t:<trace id>``."""
    by_trace: dict[str, list[Span]] = defaultdict(list)
    for span in spans:
        by_trace[span.trace_id].append(span)
    home_of: dict[tuple[str, str], str] = {}
    for trace_id, members in by_trace.items():
        named = {span.episode_key for span in members if span.episode_key}
        if len(named) > 1:
            home_of.update(_by_ancestor(trace_id, members))
        else:
            home = f"e:{named.pop()}" if named else f"t:{trace_id}"
            home_of.update(dict.fromkeys([span.key for span in members], home))
    return home_of


def _by_ancestor(trace_id: str, members: Iterable[Span]) -> Mapping[tuple[str, str], str]:
    named = {span.span_id: f"e:{span.episode_key}" if span.episode_key else "" for span in members}
    nearest = inherit({span.span_id: span.parent_span_id for span in members}, named)
    return {(trace_id, span_id): home or f"t:{trace_id}" for span_id, home in nearest.items()}


def inherit(parents: Mapping[str, str], values: Mapping[str, str]) -> dict[str, str]:
    """For each id its own value, else that of the nearest ancestor that has one, else empty.

    Args:
        parents: Id → parent's id. Parents may be missing, and may form cycles.
        values: Id → value, empty for none.
    """
    inherited: dict[str, str] = {}
    for start, above in parents.items():
        if values[start] or above not in parents:
            inherited[start] = values[start]
            continue
        if above in inherited:
            inherited[start] = inherited[above]
            continue
        path: list[str] = []
        on_path: set[str] = set()
        current, value = start, ""
        while current in parents and current not in on_path:
            if current in inherited:
                value = inherited[current]
                break
            path.append(current)
            on_path.add(current)
            if values[current]:
                value = values[current]
                break
            current = parents[current]
        for member in path:
            inherited[member] = value
    return inherited
