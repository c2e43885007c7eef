"""traceAI (Future AGI): OpenInference's numbered attributes under OpenTelemetry's names, read as OpenInference.

``gen_ai.input.messages.N.message.*`` stands for ``llm.input_messages.N.message.*``; releases before 1.0 had
``fi.span.kind`` with OpenInference's own names.
"""

from typing import Final

import polars as pl
from msgspec.structs import replace

from spanloop.semconv import attributes as names

from ..base import ColumnValue, Dialect, IndexedList, RawSpan, attr
from ..openinference import LISTS, SPAN_KIND
from ..openinference import read as read_openinference

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


def read(span: RawSpan) -> dict[str, ColumnValue]:
    """The canonical columns of one traceAI span."""
    renamed = {_RENAMED.get(key, key): value for key, value in span.attributes.items()}
    columns = read_openinference(replace(span, attributes=renamed))
    if not columns.get("finish_reasons"):
        # Never recorded: that it is missing says nothing about a stream.
        columns.pop("is_streaming", None)
    return columns


_PREFIXES: Final = {
    "seen": "gen_ai.input.messages",
    "said": "gen_ai.output.messages",
    "tools": "gen_ai.tool.definitions",
}

TRACEAI: Final = Dialect(
    name="traceai",
    # Others have such a kind too (Dify), and their messages where OpenTelemetry once had them.
    matches=(attr(_KIND).is_not_null() | attr(_FIRST_KIND).is_not_null())
    & pl.all_horizontal(attr(key).is_null() for key in _OTHERS),
    read=read,
    calls=({_KIND: ("llm",)}, {_FIRST_KIND: ("llm",)}),
    lists=LISTS
    | {name: IndexedList((prefix, *LISTS[name].prefixes), LISTS[name].read) for name, prefix in _PREFIXES.items()},
)
