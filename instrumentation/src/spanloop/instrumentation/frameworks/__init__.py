"""PROVISIONAL"""
from importlib import import_module
from wrapt import register_post_import_hook
from spanloop.instrumentation.exception_guard import guard
TABLE = {
 "mistralai.extra.observability.telemetry": "mistral:set_up", "mistralai.client._hooks.tracing": "mistral:instrument", "google.adk.plugins.plugin_manager": "google_adk:instrument",
 "pydantic_ai.agent": "pydantic_ai:instrument", "google.adk": "google_adk:set_up",
 "ag2.agent": "ag2:instrument_agent", "haystack.components.agents.agent": "haystack:instrument_runs", "haystack.core.pipeline.pipeline": "haystack:instrument_runs",
 "agentscope.agent": "agentscope:instrument_agent",
 "ag2.tools.executor": "ag2:instrument", "haystack.tools.tool": "haystack:instrument_tools",
 "haystack.components.agents.tool_calling": "haystack:instrument_agent",
 "llama_index.core.agent.workflow.base_agent": "llama_index:instrument_agent", "llama_index.core.agent.workflow.multi_agent_workflow": "llama_index:instrument_agent",
 "agentscope.tool": "agentscope:instrument",
}
def watch():
    for module, ours in TABLE.items():
        @guard(f"{module}", None)
        def hook(m, ours=ours):
            a, _, b = ours.partition(":")
            getattr(import_module(f"{__name__}.{a}"), b)(m)
        register_post_import_hook(hook, module)
