"""traceAI (Future AGI): OpenInference's numbered attributes under OpenTelemetry's names, read as OpenInference.

``gen_ai.input.messages.N.message.*`` stands for ``llm.input_messages.N.message.*``; releases before 1.0 had
``fi.span.kind`` with OpenInference's own names.
"""

from typing import Final

import polars as pl

from spanloop.semconv import attributes as names

from .base import attr
from .openinference import SPAN_KIND
from .openinference import read as read_openinference
from .rows import RawSpan, RowDialect

_KIND: Final = "gen_ai.span.kind"
_FIRST_KIND: Final = "fi.span.kind"
_OTHERS: Final = (names.GEN_AI_OPERATION_NAME, "gen_ai.prompt", "gen_ai.completion", "gen_ai.prompt.0.content")
_RENAMED: Final = {
    _KIND: SPAN_KIND,
    _FIRST_KIND: SPAN_KIND,
    names.GEN_AI_REQUEST_MODEL: "llm.model_name",
    "gen_ai.request.parameters": "llm.invocation_parameters",
    names.GEN_AI_USAGE_INPUT_TOKENS: "llm.token_count.prompt",
    names.GEN_AI_USAGE_OUTPUT_TOKENS: "llm.token_count.completion",
    names.GEN_AI_TOOL_NAME: "tool.name",
    names.GEN_AI_TOOL_CALL_ID: "tool_call.id",
    "raw.input": "input.value",
    "raw.output": "output.value",
}
_PREFIXES: Final = (
    ("gen_ai.input.messages.", "llm.input_messages."),
    ("gen_ai.output.messages.", "llm.output_messages."),
    ("gen_ai.tool.definitions.", "llm.tools."),
)


def read(span: RawSpan) -> dict[str, str]:
    """The canonical columns of one traceAI span."""
    renamed: dict[str, str] = {}
    for key, value in span.attributes.items():
        name = _RENAMED.get(key, key)
        for prefix, other in _PREFIXES:
            if key.startswith(prefix):
                name = other + key[len(prefix) :]
        renamed[name] = value
    columns = read_openinference(span._replace(attributes=renamed))
    if not columns.get("finish_reasons"):
        # Never recorded: that it is missing says nothing about a stream.
        columns.pop("is_streaming", None)
    return columns


TRACEAI: Final = RowDialect(
    name="traceai",
    attributes=frozenset({_KIND, _FIRST_KIND, *_OTHERS}),
    # Others have such a kind too (Dify), and their messages where OpenTelemetry once had them.
    matches=(attr(_KIND).is_not_null() | attr(_FIRST_KIND).is_not_null())
    & pl.all_horizontal(attr(key).is_null() for key in _OTHERS),
    read=read,
)
