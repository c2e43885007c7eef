"""Libraries that make or wrap model calls, and the instrumentors of each, best first.

The first one of each SDK records model calls, tool calls, ids and errors without a gap in ``make test-frameworks``; the
others follow by what their recordings in the tests of the converters hold.
"""

from enum import StrEnum
from typing import Final, NamedTuple


class Native(StrEnum):
    """What spanloop's own module of a framework does where another instrumentor of it is installed."""

    NONE = "none"
    """There is no such module."""
    BESIDE = "beside"
    """It stays: it adds what is missing to the other one's spans."""
    TOOLS = "tools"
    """It stays, and traces runs and tools only: the model calls need the other one."""
    FIRST = "first"
    """It traces everything, so the other one stays off."""
    LAST = "last"
    """It is left out: the other one's spans of tools are not current while the tool runs."""


class Candidate(NamedTuple):
    """An instrumentor of a library."""

    module: str
    """Python module of its entry point."""
    package: str
    """Its name on the package index."""


class Library(NamedTuple):
    """A model SDK or an agent framework."""

    name: str
    """Of the extra of spanloop, and of the module in ``frameworks`` where there is one (with underscores)."""
    distributions: tuple[str, ...]
    """Packages of which one is installed where the library is."""
    candidates: tuple[Candidate, ...]
    """Best first."""
    module: str = ""
    """The module at whose import the instrumentor is switched on; empty: at once."""
    native: Native = Native.NONE


def _openllmetry(name: str) -> Candidate:
    return Candidate(f"opentelemetry.instrumentation.{name}", f"opentelemetry-instrumentation-{name.replace('_', '-')}")


def _genai(name: str) -> Candidate:
    return Candidate(
        f"opentelemetry.instrumentation.genai.{name}", f"opentelemetry-instrumentation-genai-{name.replace('_', '-')}"
    )


def _openinference(name: str) -> Candidate:
    return Candidate(f"openinference.instrumentation.{name}", f"openinference-instrumentation-{name.replace('_', '-')}")


LIBRARIES: Final = (
    Library(
        "openai",
        ("openai",),
        (
            _openllmetry("openai"),
            _genai("openai"),
            _openllmetry("openai_v2"),
            _openinference("openai"),
        ),
        "openai",
    ),
    Library("anthropic", ("anthropic",), (_openllmetry("anthropic"), _openinference("anthropic")), "anthropic"),
    Library(
        "google-genai",
        ("google-genai",),
        (
            _openinference("google_genai"),
            _openllmetry("google_generativeai"),
            _openllmetry("google_genai"),
        ),
        "google.genai",
    ),
    Library(
        "mistral",
        ("mistralai",),
        (_openinference("mistralai"), _openllmetry("mistralai")),
        "mistralai",
        Native.FIRST,
    ),
    Library("cohere", ("cohere",), (_openinference("cohere"), _openllmetry("cohere")), "cohere"),
    Library("bedrock", ("boto3",), (_openinference("bedrock"), _openllmetry("bedrock")), "botocore"),
    Library("litellm", ("litellm",), (_openinference("litellm"), _openllmetry("litellm")), "litellm"),
    Library(
        "langchain",
        ("langchain-core",),
        (_openinference("langchain"), _genai("langchain"), _openllmetry("langchain")),
        native=Native.LAST,
    ),
    Library(
        "openai-agents",
        ("openai-agents",),
        (_openinference("openai_agents"), _genai("openai_agents"), _openllmetry("openai_agents")),
        "agents",
        Native.BESIDE,
    ),
    Library("agno", ("agno",), (_openinference("agno"), _openllmetry("agno")), "agno", Native.BESIDE),
    Library("crewai", ("crewai",), (_openinference("crewai"), _openllmetry("crewai")), "crewai", Native.BESIDE),
    Library(
        "llama-index",
        ("llama-index-core",),
        (_openinference("llama_index"), _genai("llama_index"), _openllmetry("llamaindex")),
        "llama_index.core",
        Native.BESIDE,
    ),
    Library(
        "smolagents",
        ("smolagents",),
        (_openinference("smolagents"), _genai("smolagents")),
        "smolagents",
        Native.BESIDE,
    ),
    Library("dspy", ("dspy",), (_openinference("dspy"), _genai("dspy")), "dspy", Native.TOOLS),
    Library(
        "haystack", ("haystack-ai",), (_openinference("haystack"), _openllmetry("haystack")), "haystack", Native.BESIDE
    ),
    Library("google-adk", ("google-adk",), (_openinference("google_adk"),), "google.adk", Native.FIRST),
    Library(
        "pydantic-ai",
        ("pydantic-ai-slim", "pydantic-ai"),
        (_openinference("pydantic_ai"),),
        "pydantic_ai",
        Native.FIRST,
    ),
    Library("ag2", ("ag2",), (_openinference("ag2"),), "ag2", Native.BESIDE),
    Library("agentscope", ("agentscope",), (), "agentscope", Native.BESIDE),
    Library("claude-agent-sdk", ("claude-agent-sdk",), (), "claude_agent_sdk", Native.BESIDE),
)
"""In the order in which `spanloop instrument` lists them: SDKs, then frameworks."""


def library_of(module: str) -> Library | None:
    """Return the library that the instrumentor in ``module`` instruments.

    Args:
        module: Value of an entry point, up to the colon; a submodule of a candidate's module counts as it.
    """
    names = {module, *(module[:end] for end, character in enumerate(module) if character == ".")}
    return next(
        (library for library in LIBRARIES for candidate in library.candidates if candidate.module in names), None
    )


def rank(library: Library, module: str) -> int:
    """Return the place of the instrumentor in ``module`` among the candidates; lower is better."""
    modules = [candidate.module for candidate in library.candidates]
    return next(
        (place for place, known in enumerate(modules) if module == known or module.startswith(f"{known}.")),
        len(modules),
    )
