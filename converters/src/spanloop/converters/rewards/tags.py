"""Tags that a tracing tool put on spans; they mark the episode as ``mark()`` does.

Invariant: a tag never counts as a reward. Labels that frameworks put there by themselves are no tags.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, cast

import numpy as np
import polars as pl

from ..dialects.rows import decoded
from ..reading.attributes import Attributes

SpanKey = tuple[str, str]
Tags = Mapping[SpanKey, Sequence[str]]
"""The tags of each span that has some."""
NO_TAGS: Final[Tags] = MappingProxyType({})

_KEYS: Final = ("tag.tags", "langfuse.trace.tags", "langsmith.span.tags", "logfire.tags")
"""OpenInference, Langfuse, LangSmith and Logfire: a list, or a text with commas."""
_OF_FRAMEWORKS: Final = re.compile(r"(graph|seq):step:\d+|map:key:.*|langsmith:.*|LLM")
"""LangChain's and Logfire's own labels of runs."""


def tags_in_spans(spans: pl.DataFrame, attributes: Attributes) -> Tags:
    """Return the tags that spans carry.

    Args:
        spans: The columns of ``frames.SPANS``.
        attributes: Of ``spans``.
    """
    places = np.concatenate([attributes.places(key) for key in _KEYS])
    if not len(places):
        return NO_TAGS
    keys = spans.select("TraceId", "SpanId")[pl.Series(attributes.rows[places])].rows()
    texts = attributes.texts_at(places)
    tags: dict[SpanKey, list[str]] = defaultdict(list)
    for key, text in zip(keys, texts, strict=True):
        tags[key] += _labels(text)
    return tags


def _labels(text: str) -> Iterator[str]:
    parsed = decoded(text)
    items = cast("list[object]", parsed) if isinstance(parsed, list) else text.split(",")
    labels = (item.strip() for item in items if isinstance(item, str))
    return (label for label in labels if label and not _OF_FRAMEWORKS.fullmatch(label))
