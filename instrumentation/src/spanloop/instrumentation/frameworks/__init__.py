"""Instrumentors of agent frameworks: tool calls, agent runs, and the switches of frameworks that trace themselves.

Each framework is one module of this package. It is imported when the app imports the named module of the framework,
so an app pays for no framework that it does not use. Model calls stay with the instrumentor of the model's library.

Invariant: a framework behaves as without spanloop. A module or function that another release lacks costs only its own
spans.
"""

from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from typing import Any, Final

from wrapt import register_post_import_hook

from spanloop.instrumentation.exception_guard import guard

FRAMEWORKS: Final[Mapping[str, Mapping[str, str]]] = {
    "ag2": {"ag2.agent": "trace_runs", "ag2.tools.executor": "trace_tools"},
    "agentscope": {"agentscope.agent": "trace_runs", "agentscope.tool": "trace_tools"},
    "agno": {
        "agno.agent.agent": "trace_agents",
        "agno.team.team": "trace_teams",
        "agno.tools.function": "trace_tools",
    },
    "claude_agent_sdk": {"claude_agent_sdk._internal.transport.subprocess_cli": "trace_sessions"},
    "crewai": {
        "crewai.agent.core": "trace_agents",
        "crewai.agents.agent_executor": "trace_native_calls",
        "crewai.crew": "trace_crews",
        "crewai.tools.base_tool": "trace_errors",
        "crewai.tools.structured_tool": "trace_tools",
        "crewai.utilities.agent_utils": "trace_planned_calls",
    },
    "dspy": {"dspy.adapters.types.tool": "trace_tools", "dspy.primitives.module": "trace_programs"},
    "google_adk": {"google.adk": "switch_on", "google.adk.plugins.plugin_manager": "trace_tool_errors"},
    "haystack": {
        "haystack.components.agents.agent": "trace_agents",
        "haystack.components.agents.tool_calling": "trace_call_ids",
        "haystack.core.pipeline.pipeline": "trace_pipelines",
        "haystack.tools.tool": "trace_tools",
    },
    "langchain": {"langchain_core.tools.base": "trace_tools", "langgraph.pregel.main": "trace_graphs"},
    "llama_index": {
        "llama_index.core.agent.workflow.base_agent": "trace_agents",
        "llama_index.core.agent.workflow.multi_agent_workflow": "trace_teams",
        "llama_index.core.tools.calling": "trace_selected_tools",
    },
    "mistralai": {
        "mistralai.client._hooks.tracing": "trace_errors",
        "mistralai.extra.observability.telemetry": "switch_on",
    },
    "openai_agents": {"agents.run": "trace_runs", "agents.tool": "trace_tools"},
    "pydantic_ai": {"pydantic_ai.agent": "switch_on"},
    "smolagents": {"smolagents.agents": "trace"},
}
"""Name, as ``OTEL_PYTHON_DISABLED_INSTRUMENTATIONS`` calls it, and module of this package → module of the framework →
function that instruments it."""


def watch_frameworks(switched_off: Collection[str] = ()) -> None:
    """Instrument each framework when the app imports it.

    Args:
        switched_off: Names of frameworks that stay as they are.
    """
    for name, functions in FRAMEWORKS.items():
        if name not in switched_off:
            for module, function in functions.items():
                register_post_import_hook(_instrument_by(name, function), module)


def _instrument_by(name: str, function: str) -> Callable[[Any], None]:
    @guard(f"{name} was not instrumented", None)
    def instrument(module: Any) -> None:
        getattr(import_module(f"{__name__}.{name}"), function)(module)

    return instrument
