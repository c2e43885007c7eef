"""OpenLLMetry's OpenAI instrumentor (0.62): OpenTelemetry's message JSON, plus what it marks of its own.

Recognised by ``gen_ai.is_streaming`` or ``gen_ai.openai.api_base``, which it writes on every call; the scope is not
enough, because exporters in between may drop it. A stream that breaks ends with status OK and an empty finish
reason: ``is_streaming`` is what lets ``normalise`` tell that from a call whose finish reason was never captured.
"""

from typing import Final

import polars as pl

from .base import Dialect, attr
from .otel_genai import OTEL_GENAI

IS_STREAMING: Final = "gen_ai.is_streaming"
API_BASE: Final = "gen_ai.openai.api_base"

OPENLLMETRY: Final = Dialect(
    name="openllmetry",
    matches=attr(IS_STREAMING).is_not_null()
    | attr(API_BASE).is_not_null()
    | pl.col("ScopeName").str.starts_with("opentelemetry.instrumentation.openai.v"),
    columns={
        **OTEL_GENAI.columns,
        "is_streaming": attr(IS_STREAMING),
    },
)
