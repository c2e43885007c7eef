"""Spans that Agent Lightning's adapter reads: model calls told by their token ids alone, agents by ``agent.name``.

Whatever names a model, an operation or messages is read by another dialect.
"""

from typing import Final

import polars as pl

from ...spans import SpanKind
from ..base import Dialect, attr
from ..otel_genai import sources

_SAMPLED: Final = "response_token_ids"
_AGENT: Final = "agent.name"
_HAS_TOKENS: Final = attr(_SAMPLED).str.contains(r"\d").fill_null(value=False)

AGENT_LIGHTNING: Final = Dialect(
    name="agent_lightning",
    matches=_HAS_TOKENS | attr(_AGENT).is_not_null(),
    columns={
        **sources(before={"agent_name": (_AGENT,)}),
        "kind": pl.when(_HAS_TOKENS).then(pl.lit(SpanKind.LLM.value)).otherwise(pl.lit(SpanKind.AGENT.value)),
    },
    calls=({_SAMPLED: r"\d"},),
)
