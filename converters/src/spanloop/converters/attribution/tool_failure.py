"""A tool that was called properly and failed: its surroundings are to blame when the text says so, else the tool."""

import re
from typing import Final

from spanloop.semconv.enums import FaultOwner

from .base import ErrorClass, Finding, ToolCallRule, ToolScene

_ENVIRONMENT: Final = (
    (ErrorClass.TIMEOUT, re.compile(r"time[d]?[ -]?out|TimeoutError|deadline exceeded", re.IGNORECASE)),
    (
        ErrorClass.RATE_LIMIT,
        re.compile(r"rate.?limit|\b(?:HTTP|status|code)\D{0,8}429\b|too many requests", re.IGNORECASE),
    ),
    (
        ErrorClass.SERVER_ERROR,
        re.compile(
            r"\b(?:HTTP|status|code)\D{0,8}5\d\d\b|internal server error|bad gateway|service unavailable", re.IGNORECASE
        ),
    ),
    (
        ErrorClass.CONNECTION_ERROR,
        re.compile(
            r"connection (?:refused|reset|error|aborted)|ConnectionError|ConnectError|name resolution|unreachable",
            re.IGNORECASE,
        ),
    ),
)


def _environment(scene: ToolScene) -> Finding | None:
    result = scene.result
    if result is None or not result.is_error:
        return None
    text = f"{result.error_type} {result.content}"
    for error_class, pattern in _ENVIRONMENT:
        if pattern.search(text):
            confidence = 0.9 * result.confidence
            return Finding(error_class, FaultOwner.ENVIRONMENT, confidence, result.content, _evidence(scene))
    return None


def _raised(scene: ToolScene) -> Finding | None:
    result = scene.result
    if result is None or not result.is_error:
        return None
    return Finding(ErrorClass.TOOL_ERROR, FaultOwner.TOOL, 0.7 * result.confidence, result.content, _evidence(scene))


def _evidence(scene: ToolScene) -> dict[str, str]:
    result = scene.result
    if result is None:
        return {}
    return {
        "arguments": scene.call.arguments,
        "error_type": result.error_type,
        "result": result.content[:500],
        "seen_by": result.evidence,
    }


TOOL_ENVIRONMENT: Final = ToolCallRule("tool_environment", _environment)
TOOL_RAISED: Final = ToolCallRule("tool_raised", _raised)
