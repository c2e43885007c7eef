"""Cached input tokens and time to first token of model calls, whatever dialect the span is in.

Invariant: a span that did not record the time to its first token has None, never zero. Zero cached tokens are none
that were recorded.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

import numpy as np
import numpy.typing as npt

from .attributes import Attributes

CACHED_TOKENS: Final = (
    "gen_ai.usage.cache_read.input_tokens",
    "gen_ai.usage.cache_read_input_tokens",
    "gen_ai.usage.cached_tokens",
    "llm.token_count.prompt_details.cache_read",
    "ai.usage.cachedInputTokens",
    "ai.usage.inputTokenDetails.cacheReadTokens",
    "judgment.usage.cache_read_input_tokens",
    "cache_read_tokens",
    "cache_read_input_tokens",
)
"""Attributes of the input tokens that the provider read from its cache; the first that a span has counts."""

_SECONDS: Final = (
    "gen_ai.response.time_to_first_chunk",
    "gen_ai.client.operation.time_to_first_chunk",
    "gen_ai.performance.time_to_first_token",
)
_MILLISECONDS: Final = ("ai.response.msToFirstChunk", "ai.observability.generation.time_to_first_token_ms")
_MOMENTS: Final = ("langfuse.observation.completion_start_time", "mastra.completion_start_time")
_LONGEST_NS: Final = 86_400 * 10**9


def first_token_times(
    attributes: Attributes, rows: npt.NDArray[np.int64], starts_ns: Sequence[int]
) -> list[int | None]:
    """Return nanoseconds from the start of each row's span to its first token, None where the span does not say.

    Args:
        attributes: Of all rows.
        rows: The rows that are meant.
        starts_ns: The start of the span of each of ``rows``.
    """
    times: list[int | None] = [None] * len(rows)
    readers: tuple[tuple[Sequence[str], Callable[[str, int], int | None]], ...] = (
        (_SECONDS, lambda text, _: _scaled(text, 1e9)),
        (_MILLISECONDS, lambda text, _: _scaled(text, 1e6)),
        (_MOMENTS, _since),
    )
    for keys, read in readers:
        for key in keys:
            if key in attributes:
                values = attributes.column(key, rows).to_list()
                times = [
                    read(value, start) if time is None and value else time
                    for time, value, start in zip(times, values, starts_ns, strict=True)
                ]
    return times


def cached_token_texts(attributes: Attributes, rows: npt.NDArray[np.int64]) -> list[str]:
    """Return the recorded count of cached input tokens of each row, empty where the span does not say."""
    texts = [""] * len(rows)
    for key in CACHED_TOKENS:
        if key in attributes:
            values = attributes.column(key, rows).to_list()
            texts = [text or value or "" for text, value in zip(texts, values, strict=True)]
    return texts


def _scaled(text: str, unit_ns: float) -> int | None:
    try:
        time_ns = float(text) * unit_ns
    except ValueError:
        return None
    return round(time_ns) if 0 < time_ns <= _LONGEST_NS else None


def _since(text: str, start_ns: int) -> int | None:
    try:
        moment = datetime.fromisoformat(text.strip('"'))
    except ValueError:
        return None
    if moment.tzinfo is None:
        return None
    time_ns = round(moment.timestamp() * 1e6) * 1_000 - start_ns
    return time_ns if 0 < time_ns <= _LONGEST_NS else None
