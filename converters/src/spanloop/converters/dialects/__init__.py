"""Dialects: how each family of instrumentors spells its spans. One module each, one line in the registry."""

from typing import Final

from .agentscope import AGENTSCOPE
from .autogen import AUTOGEN
from .base import BODY, CANONICAL, Dialect, IndexedList, RawSpan, attr, column_of
from .claude_code import CLAUDE_CODE
from .decorated import DECORATED
from .indexed_attributes import keys_of, lists_of
from .laminar import LAMINAR
from .legacy import ASKED, LEGACY
from .litellm import LITELLM
from .llama_index import LLAMA_INDEX
from .logfire import LOGFIRE, LOGFIRE_STREAM
from .mastra import MASTRA
from .monocle import MONOCLE
from .neatlogs import NEATLOGS
from .openai_agents import OPENAI_AGENTS
from .openinference import OPENINFERENCE
from .openllmetry import OPENLLMETRY
from .otel_genai import OTEL_GENAI
from .other_names import OTHER_NAMES, SERVER
from .rows import of_keys
from .traceai import TRACEAI
from .uneven import UNEVEN
from .vercel_ai import VERCEL_AI
from .wrapped import WRAPPED

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
    *WRAPPED,
    *DECORATED,
    NEATLOGS,
    SERVER,
    OTHER_NAMES,
    OPENAI_AGENTS,
    UNEVEN,
    LEGACY,
    OPENLLMETRY,
    OTEL_GENAI,
)
"""In order of precedence: what says more about where a span comes from comes first."""

__all__ = [
    "ASKED",
    "BODY",
    "CANONICAL",
    "DIALECTS",
    "Dialect",
    "IndexedList",
    "RawSpan",
    "attr",
    "column_of",
    "keys_of",
    "lists_of",
    "of_keys",
]
