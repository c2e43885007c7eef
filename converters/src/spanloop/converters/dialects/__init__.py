"""Dialects: how each family of instrumentors writes its spans. One module each, one line in the registry.

An installed package adds a dialect with an entry point in the group ``spanloop.dialects``.
"""

from functools import cache
from typing import Final

from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.plugins import offered_extensions

from .attribute_map import ATTRIBUTE_MAPS
from .base import (
    BODY,
    CANONICAL,
    COLUMNS,
    IS_READ,
    ColumnValue,
    Dialect,
    IndexedList,
    RawSpan,
    attr,
    attributes_of,
    column_of,
)
from .contrib.agent_lightning import AGENT_LIGHTNING
from .contrib.agentscope import AGENTSCOPE
from .contrib.autogen import AUTOGEN
from .contrib.claude_code import CLAUDE_CODE
from .contrib.decorated import DECORATED
from .contrib.laminar import LAMINAR
from .contrib.litellm import LITELLM
from .contrib.llama_index import LLAMA_INDEX
from .contrib.mastra import MASTRA
from .contrib.monocle import MONOCLE
from .contrib.neatlogs import NEATLOGS
from .contrib.other_names import OTHER_NAMES, SERVER
from .contrib.traceai import TRACEAI
from .conventions import CONVENTIONS, Convention
from .conversation_events import CONVERSATION
from .indexed_attributes import lists_of
from .legacy import LEGACY, REQUESTED_CALLS
from .logfire import LOGFIRE, LOGFIRE_STREAM
from .nonstandard_otel import NONSTANDARD_OTEL
from .openai_agents import OPENAI_AGENTS
from .openinference import OPENINFERENCE
from .openllmetry import OPENLLMETRY
from .otel_genai import OTEL_GENAI
from .vercel_ai import VERCEL_AI

DIALECTS: Final[tuple[Dialect, ...]] = (
    OPENINFERENCE,
    TRACEAI,
    LAMINAR,
    MONOCLE,
    MASTRA,
    CLAUDE_CODE,
    AUTOGEN,
    AGENTSCOPE,
    VERCEL_AI,
    LITELLM,
    LLAMA_INDEX,
    LOGFIRE_STREAM,
    LOGFIRE,
    *ATTRIBUTE_MAPS,
    *DECORATED,
    NEATLOGS,
    SERVER,
    OTHER_NAMES,
    OPENAI_AGENTS,
    NONSTANDARD_OTEL,
    LEGACY,
    OPENLLMETRY,
    OTEL_GENAI,
    AGENT_LIGHTNING,
)
"""In order of precedence: what says more about where a span comes from comes first."""

GROUP: Final = "spanloop.dialects"


@cache
def registered_dialects() -> tuple[Dialect, ...]:
    """The dialects of installed packages, which come first, and the built-in ones.

    Raises:
        ConfigurationError: An entry point cannot be imported, or is no dialect.
    """
    offered = offered_extensions(group=GROUP, what="dialect")
    for dialect in offered:
        if not isinstance(dialect, Dialect):
            raise ConfigurationError(
                f"An entry point of group {GROUP} is {dialect!r}; expected a Dialect.",
                next_step="Point it at an instance of spanloop.converters.dialects.Dialect.",
            )
    return (*(dialect for dialect in offered if isinstance(dialect, Dialect)), *DIALECTS)


__all__ = [
    "BODY",
    "CANONICAL",
    "COLUMNS",
    "CONVENTIONS",
    "CONVERSATION",
    "DIALECTS",
    "IS_READ",
    "REQUESTED_CALLS",
    "ColumnValue",
    "Convention",
    "Dialect",
    "IndexedList",
    "RawSpan",
    "attr",
    "attributes_of",
    "column_of",
    "lists_of",
    "registered_dialects",
]
