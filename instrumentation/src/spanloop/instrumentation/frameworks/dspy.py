"""DSPy: each program and tool is called by ``__call__`` or ``acall``.

Calls of tools have no ids: DSPy reads them from the text of the model's answer. The programs that a program is made of
are no runs of their own.
"""

from contextvars import ContextVar
from types import ModuleType
from typing import Final

from .traced import AgentRun, ToolCall, ToolRequest, wrap_functions

_RUN: Final = AgentRun(
    name=lambda call: type(call.instance).__name__, is_inside=ContextVar("spanloop_dspy_is_inside", default=False)
)
_TOOL: Final = ToolCall(read=lambda call: ToolRequest(getattr(call.instance, "name", ""), arguments=dict(call.named)))


def trace_programs(module: ModuleType) -> None:
    """Wrap ``dspy.primitives.module``."""
    wrap_functions(module, {"Module.__call__": _RUN.call, "Module.acall": _RUN.coroutine})


def trace_tools(module: ModuleType) -> None:
    """Wrap ``dspy.adapters.types.tool``."""
    wrap_functions(module, {"Tool.__call__": _TOOL.call, "Tool.acall": _TOOL.coroutine})
