"""Laminar's instrumentors: ``lmnr.span.type`` in the place of an operation, messages and choices as JSON.

A function that ``observe`` wraps has its arguments and answer in ``lmnr.span.input`` and ``lmnr.span.output``.
"""

from typing import Final

import polars as pl

from spanloop.semconv import attributes as names

from ...spans import SpanKind
from ..base import Dialect, attr
from ..otel_genai import OTEL_GENAI

_TYPE: Final = "lmnr.span.type"
_INPUT: Final = "lmnr.span.input"
_OUTPUT: Final = "lmnr.span.output"
_IS_CALL: Final = attr(_TYPE) == "LLM"
_IS_TOOL: Final = attr(_TYPE) == "TOOL"

LAMINAR: Final = Dialect(
    name="laminar",
    # Calls of releases before 0.7, whose messages are numbered, are the legacy forms'.
    matches=attr(_TYPE).is_not_null() & (~_IS_CALL | attr(names.GEN_AI_INPUT_MESSAGES).is_not_null()),
    calls=({_TYPE: ("llm",)},),
    columns={
        **OTEL_GENAI.columns,
        "kind": pl.when(_IS_CALL)
        .then(pl.lit(SpanKind.LLM.value))
        .when(_IS_TOOL)
        .then(pl.lit(SpanKind.TOOL.value))
        .when(attr(_TYPE) == "AGENT")
        .then(pl.lit(SpanKind.AGENT.value))
        .otherwise(pl.lit(SpanKind.OTHER.value)),
        "agent_name": pl.when(attr(_TYPE) == "AGENT").then(pl.col("SpanName")),
        "is_streaming": attr("llm.is_streaming").str.to_lowercase(),
        "tool_name": pl.when(_IS_TOOL).then(pl.col("SpanName")),
        "tool_arguments": pl.when(_IS_TOOL).then(attr(_INPUT)),
        "tool_result": pl.when(_IS_TOOL).then(
            # A text is written as JSON.
            pl.when(attr(_OUTPUT).str.starts_with('"'))
            .then(attr(_OUTPUT).str.json_decode(pl.String))
            .otherwise(attr(_OUTPUT))
        ),
    },
)
