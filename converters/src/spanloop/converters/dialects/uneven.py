"""OpenTelemetry's attributes with messages in another form: JSON within JSON, Python's repr, one message, texts.

Read here is only what the form of ``otel_genai`` cannot be; text that is no such thing stays, and is malformed.
"""

from typing import Final

import polars as pl

from spanloop.semconv import attributes as names

from ..chat_forms import as_list, messages
from ..messages import dump
from .base import attr
from .legacy import kind_of
from .otel_genai import COMPLETION_TOKENS, PROMPT_TOKENS, SOURCES
from .rows import RawSpan, RowDialect, decoded, first, known

_ALTERNATIVES: Final = {"input_tokens": PROMPT_TOKENS, "output_tokens": COMPLETION_TOKENS}
_UNEVEN: Final = r"""^\s*(?:"|\{|\[\s*(?:"|'|\{\s*'))"""
"""How a text, an object, a list of texts and a repr begin."""


def read(span: RawSpan) -> dict[str, str]:
    """The canonical columns of one span."""
    columns = {column: first(span.attributes, key, _ALTERNATIVES.get(column, "")) for column, key in SOURCES.items()}
    for column, role in (("input_messages", "user"), ("output_messages", "assistant")):
        columns[column] = _evened(columns[column], role)
    return known({**columns, "kind": str(kind_of(span))})


def _evened(text: str, role: str) -> str:
    found = decoded(text) if text else None
    if isinstance(found, str):
        found = decoded(found)
    items = as_list(found) or [found]
    told = messages([decoded(item) if isinstance(item, str) else item for item in items], role)
    return dump(told) if told and all(item.get("parts") for item in told) else text


UNEVEN: Final = RowDialect(
    name="uneven",
    attributes=frozenset({names.GEN_AI_OPERATION_NAME, names.GEN_AI_INPUT_MESSAGES, names.GEN_AI_OUTPUT_MESSAGES}),
    matches=attr(names.GEN_AI_OPERATION_NAME).is_not_null()
    & pl.any_horizontal(
        attr(key).str.contains(_UNEVEN).fill_null(value=False)
        for key in (names.GEN_AI_INPUT_MESSAGES, names.GEN_AI_OUTPUT_MESSAGES)
    ),
    read=read,
)
