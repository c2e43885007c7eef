"""ClickHouse's condition for model calls, generated from the declarations of the registered dialects.

Invariant: the same dialects in the same order give the same text. Values of a package's dialect appear as escaped
literals only.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from spanloop.converters.dialects import COLUMNS, Dialect

_EVENTS: Final = "Events.Name"


def model_call_condition(dialects: Iterable[Dialect]) -> str:
    """Return a SQL condition on a row of ``otel_traces``: True for what ``Dialect.calls`` of any dialect describes."""
    alternatives = dict.fromkeys(
        " AND ".join(_test(name, expected) for name, expected in call.items())
        for dialect in dialects
        for call in dialect.calls
        # A tracer that names no model calls declares no values.
        if all(expected or isinstance(expected, str) for expected in call.values())
    )
    return " OR ".join(f"({alternative})" for alternative in alternatives) or "false"


def _test(name: str, expected: str | Sequence[str]) -> str:
    if name.startswith("!"):
        return f"NOT ({_test(name[1:], expected)})"
    column = f"SpanAttributes[{_literal(name)}]" if name not in COLUMNS else f"`{name}`"
    if expected == "" and name not in COLUMNS:
        return f"mapContains(SpanAttributes, {_literal(name)})"
    if isinstance(expected, str):
        condition = f"match({'event' if name == _EVENTS else column}, {_literal(expected)})"
        return f"arrayExists(event -> {condition}, {column})" if name == _EVENTS else condition
    values = ", ".join(map(_literal, expected))
    if name == _EVENTS:
        return f"hasAny({column}, [{values}])"
    # Some tracers encode an attribute's text as JSON.
    text = column if name in COLUMNS else f"lower(trim(BOTH '\"' FROM {column}))"
    return f"{text} IN ({values})"


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
