"""One failure that several spans tell of: an exception marks what it passes on its way up, each in words of its own.

An agent's "Error in agent run: X" is the model call's "Error getting response: X", and so is the error of a tool behind
which the agent stands. Counted is the innermost one: where it was raised.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from ..spans import Span
from ..steps import Episode
from ..stitch import SpanKey, inherit
from .failure import Failure

_WORD: Final = re.compile(r"\w+")
_LEAST_WORDS: Final = 3
_MOST_TEXT: Final = 4_000


def is_echo(one: str, other: str) -> bool:
    """Whether two errors are the same in words: one holds the other, or both end alike, for half of the shorter one."""
    if one in other or other in one:
        return True
    words, others = (_WORD.findall(text[-_MOST_TEXT:].casefold()) for text in (one, other))
    shorter = min(len(words), len(others))
    alike = 0
    while alike < shorter and words[-1 - alike] == others[-1 - alike]:
        alike += 1
    return alike >= _LEAST_WORDS and 2 * alike >= shorter


def said(span: Span) -> str:
    """What a failed span says of its error."""
    return span.exception.message or span.status_message


def nearest_above(spans: Sequence[Span], chosen: Collection[SpanKey]) -> dict[SpanKey, SpanKey]:
    """Span → the nearest of the ``chosen`` ones above it; nothing for a span without one."""
    names = {span.key: f"{span.trace_id}/{span.span_id}" for span in spans}
    parents = {names[span.key]: f"{span.trace_id}/{span.parent_span_id}" for span in spans}
    found = inherit(parents, {name: name if key in chosen else "" for key, name in names.items()})
    keys = {name: key for key, name in names.items()}
    above = {key: found.get(parents[name], "") for key, name in names.items()}
    return {key: keys[name] for key, name in above.items() if name and keys[name] != key}


def without_echoes(failures: Sequence[Failure], of_tools: Mapping[SpanKey, Failure], episode: Episode) -> list[Failure]:
    """``failures`` less those of tools that only hand on what failed behind them; what got over one got over the other.

    Args:
        failures: Of model calls and of tools.
        of_tools: Those of tools, by the tool's own span.
        episode: Whose they are.
    """
    if not of_tools or len(failures) == 1:
        return list(failures)
    above = nearest_above(episode.spans, of_tools)
    own = {id(failure): key for key, failure in of_tools.items()}
    places = [own.get(id(failure), failure.culprit) for failure in failures]
    echoes: dict[SpanKey, SpanKey] = {}  # tool → where what it hands on was raised, as far as is known
    for failure, place in zip(failures, places, strict=True):
        tool, root = above.get(place), echoes.get(place, place)
        if tool is not None and tool != root and is_echo(of_tools[tool].finding.message, failure.finding.message):
            echoes[tool] = root
    found: list[Failure] = []
    for failure, place in zip(failures, places, strict=True):
        if id(failure) in own and place in echoes:
            continue
        is_recovered, tool = failure.is_recovered, above.get(place)
        while tool is not None and tool in echoes and tool != place:
            is_recovered |= of_tools[tool].is_recovered
            tool = above.get(tool)
        found.append(replace(failure, is_recovered=is_recovered))
    return found
