"""OpenLLMetry's OpenAI instrumentor (0.62): OpenTelemetry's message JSON, plus what it marks of its own.

Recognised by ``gen_ai.is_streaming`` or ``gen_ai.openai.api_base``, which it writes on every call; the scope is not
enough, because exporters in between may drop it. A stream that breaks ends with status OK and an empty finish
reason: ``is_streaming`` is what lets ``normalise`` tell that from a call whose finish reason was never captured.
Older releases count tokens under ``prompt_tokens`` and ``completion_tokens``.
"""

from typing import Final

import polars as pl

from .base import Dialect, attr
from .otel_genai import OTEL_GENAI

PROMPT_TOKENS: Final = "gen_ai.usage.prompt_tokens"
COMPLETION_TOKENS: Final = "gen_ai.usage.completion_tokens"
IS_STREAMING: Final = "gen_ai.is_streaming"
API_BASE: Final = "gen_ai.openai.api_base"

OPENLLMETRY: Final = Dialect(
    name="openllmetry",
    attributes=OTEL_GENAI.attributes | {IS_STREAMING, API_BASE, PROMPT_TOKENS, COMPLETION_TOKENS},
    matches=attr(IS_STREAMING).is_not_null()
    | attr(API_BASE).is_not_null()
    | pl.col("ScopeName").str.starts_with("opentelemetry.instrumentation.openai.v"),
    columns={
        **OTEL_GENAI.columns,
        "is_streaming": attr(IS_STREAMING),
        "input_tokens": pl.coalesce(OTEL_GENAI.columns["input_tokens"], attr(PROMPT_TOKENS)),
        "output_tokens": pl.coalesce(OTEL_GENAI.columns["output_tokens"], attr(COMPLETION_TOKENS)),
    },
)
