"""One failure that several spans tell of: an exception marks what it passes on its way up, each in words of its own.

An agent's "Error in agent run: X" is the model call's "Error getting response: X", and so is the error of a tool behind
which the agent stands. Counted is the innermost one: where it was raised.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from ..linking import SpanKey, inherit
from ..spans import Span, SpanKind
from ..steps import Episode
from .base import ErrorClass, Finding
from .failed_request import classify, error_text
from .failure import Failure

_WORD: Final = re.compile(r"\w+")
_LEAST_WORDS: Final = 3
_MOST_TEXT: Final = 4_000


def is_same_error(one: str, other: str) -> bool:
    """Whether two errors are the same in words: one holds the other, or both end alike, for half of the shorter one."""
    if one in other or other in one:
        return True
    words, others = (_WORD.findall(text[-_MOST_TEXT:].casefold()) for text in (one, other))
    shorter = min(len(words), len(others))
    alike = 0
    while alike < shorter and words[-1 - alike] == others[-1 - alike]:
        alike += 1
    return alike >= _LEAST_WORDS and 2 * alike >= shorter


def span_error(span: Span) -> str:
    """Return the error message of a failed span; empty without one."""
    return span.exception.message or span.status_message


def is_last_call(call: Span, around: Span, spans: Sequence[Span]) -> bool:
    """Whether a model call is the last thing that was called before ``around`` ended."""
    is_call = call.kind is SpanKind.LLM
    return is_call and not any(
        span.kind in {SpanKind.LLM, SpanKind.TOOL} and call.end_ns <= span.start_ns < around.end_ns
        for span in spans
        if span.key != call.key
    )


def with_messages_from_above(failures: Sequence[Failure], episode: Episode) -> list[Failure]:
    """``failures``, those of model calls that say nothing of it in the words of what the error passed on its way up."""
    without_message = {failure.culprit for failure in failures if _has_no_message(failure)}
    if not without_message:
        return list(failures)
    failed = {span.key: span for span in episode.context if span.has_failed and span_error(span)}
    above = nearest_above(episode.spans, failed)
    described: list[Failure] = []
    for failure in failures:
        reporter = failed.get(above.get(failure.culprit, ("", ""))) if failure.culprit in without_message else None
        classified = classify(error_text(reporter)) if reporter is not None else None
        if reporter is None or classified is None or not is_last_call(failure.step.span, reporter, episode.spans):
            described.append(failure)
            continue
        error_class, owner, confidence = classified
        evidence = {**failure.finding.evidence, "said_by": reporter.name}
        finding = Finding(error_class, owner, 0.9 * confidence, span_error(reporter), evidence)
        described.append(replace(failure, finding=finding))
    return described


def _has_no_message(failure: Failure) -> bool:
    return failure.finding.error_class == ErrorClass.MODEL_CALL_ERROR and not span_error(failure.step.span)


def nearest_above(spans: Sequence[Span], chosen: Collection[SpanKey]) -> dict[SpanKey, SpanKey]:
    """Span → the nearest of the ``chosen`` ones above it; nothing for a span without one."""
    names = {span.key: f"{span.trace_id}/{span.span_id}" for span in spans}
    parents = {names[span.key]: f"{span.trace_id}/{span.parent_span_id}" for span in spans}
    nearest = inherit(parents, {name: name if key in chosen else "" for key, name in names.items()})
    keys = {name: key for key, name in names.items()}
    above = {key: nearest.get(parents[name], "") for key, name in names.items()}
    return {key: keys[name] for key, name in above.items() if name and keys[name] != key}


def deduplicated(failures: Sequence[Failure], of_tools: Mapping[SpanKey, Failure], episode: Episode) -> list[Failure]:
    """``failures`` less those of tools that only hand on what failed behind them; what got over one got over the other.

    Args:
        failures: Of model calls and of tools.
        of_tools: Those of tools, by the tool's own span.
        episode: Whose they are.
    """
    if not of_tools or len(failures) == 1:
        return list(failures)
    above = nearest_above(episode.spans, of_tools)
    tool_spans = {id(failure): key for key, failure in of_tools.items()}
    places = [tool_spans.get(id(failure), failure.culprit) for failure in failures]
    repeats: dict[SpanKey, SpanKey] = {}  # tool → where what it hands on was raised, as far as is known
    for failure, place in zip(failures, places, strict=True):
        tool, root = above.get(place), repeats.get(place, place)
        if tool is not None and tool != root and is_same_error(of_tools[tool].finding.message, failure.finding.message):
            repeats[tool] = root
    kept: list[Failure] = []
    for failure, place in zip(failures, places, strict=True):
        if id(failure) in tool_spans and place in repeats:
            continue
        is_recovered, tool = failure.is_recovered, above.get(place)
        while tool is not None and tool in repeats and tool != place:
            is_recovered |= of_tools[tool].is_recovered
            tool = above.get(tool)
        kept.append(replace(failure, is_recovered=is_recovered))
    return kept
