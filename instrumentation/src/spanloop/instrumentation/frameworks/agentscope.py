"""AgentScope 1 and 2.

In 2, each reply passes ``Agent._reply``, and each tool call ``Toolkit.call_tool``; both are generators. A failed tool
is a response in the state "error"; the exception itself passes ``ToolBase.__call__``. In 1, a reply passes
``AgentBase.__call__``, and a tool call ``Toolkit.call_tool_function``, which turns an exception of the registered
function into a text.
"""

import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, Final

from wrapt import FunctionWrapper

from spanloop.instrumentation.exception_guard import guard

from .spans import RunSpan
from .traced import AgentRun, Call, ToolCall, ToolRequest, record_raised, wrap_functions

_FAILED: Final = "error"
_HUMAN: Final = "UserAgent"
"""AgentScope 1's class of agents that ask a person."""


def trace_runs(module: ModuleType) -> None:
    """Wrap ``agentscope.agent``."""
    if hasattr(module, "Agent"):
        wrap_functions(module, {"Agent._reply": _RUN_2.stream})
    else:
        wrap_functions(module, {"AgentBase.__call__": _RUN_1.coroutine})


def _is_traced(call: Call) -> bool:
    """Return whether a call is an agent's, and the app did not switch AgentScope 1's own tracing on."""
    config = getattr(sys.modules.get("agentscope"), "_config", None)
    return type(call.instance).__name__ != _HUMAN and not getattr(config, "trace_enabled", False)


def trace_tools(module: ModuleType) -> None:
    """Wrap ``agentscope.tool``."""
    if hasattr(module, "ToolBase"):
        wrap_functions(module, {"Toolkit.call_tool": _TOOL_2.stream, "ToolBase.__call__": record_raised})
    else:
        wrap_functions(
            module, {"Toolkit.call_tool_function": _TOOL_1.coroutine, "Toolkit.register_tool_function": _register}
        )


def _read(call: Call) -> ToolRequest:
    block = call.argument("tool_call", 0)
    return ToolRequest(_field(block, "name"), _field(block, "id"), _field(block, "input", None))


def _field(block: Any, name: str, default: object = "") -> Any:
    """Return a field of a content block: an object in AgentScope 2, a dict in 1."""
    return block.get(name, default) if isinstance(block, dict) else getattr(block, name, default)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


def _record(span: RunSpan, response: Any) -> None:
    """Record the whole response, which is the last thing in the stream."""
    text = "\n".join(str(_field(block, "text", block)) for block in getattr(response, "content", ()))
    if getattr(getattr(response, "state", None), "value", "") == _FAILED:
        span.fail(text)
    else:
        span.set_result(text)


def _register(register: Callable[..., Any], toolkit: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    result = register(*args, **named)
    _wrap_functions(toolkit)
    return result


@guard("a tool's exceptions are not recorded", None)
def _wrap_functions(toolkit: Any) -> None:
    for tool in toolkit.tools.values():
        if not isinstance(tool.original_func, FunctionWrapper):
            tool.original_func = FunctionWrapper(tool.original_func, record_raised)


_RUN_1: Final = AgentRun(is_traced=_is_traced)
_TOOL_1: Final = ToolCall(read=_read, record=_record, is_traced=_is_traced, follows_generators=True)
_RUN_2: Final = AgentRun()
_TOOL_2: Final = ToolCall(read=_read, record=_record)
