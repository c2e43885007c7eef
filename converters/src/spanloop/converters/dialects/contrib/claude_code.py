"""Claude Code's own spans: which requests it made, how they ended, and its tools with what they answered.

What a request held is in log records of the span around it, if anywhere, and cut off: such calls have no messages.
"""

from typing import Final

import polars as pl

from spanloop.semconv import attributes as names

from ...chat_forms import message
from ...messages import dump
from ...spans import SpanKind
from ..base import Dialect, RawSpan, attr
from ..rows import known

_TYPE: Final = "span.type"
_KINDS: Final = {"llm_request": SpanKind.LLM, "tool": SpanKind.TOOL, "interaction": SpanKind.AGENT}


def read(span: RawSpan) -> dict[str, str]:
    """The canonical columns of one of Claude Code's spans."""
    attributes = span.attributes
    kind = _KINDS.get(attributes[_TYPE], SpanKind.OTHER)
    columns = {
        "kind": str(kind),
        "conversation_id": attributes.get(names.GEN_AI_CONVERSATION_ID, ""),
    }
    if kind is SpanKind.LLM:
        words = attributes.get("response.model_output", "")
        columns |= {
            "request_model": attributes.get(names.GEN_AI_REQUEST_MODEL, ""),
            "finish_reasons": attributes.get("stop_reason", ""),
            "input_tokens": attributes.get("input_tokens", ""),
            "output_tokens": attributes.get("output_tokens", ""),
            "error_type": attributes.get("status_code", ""),
            "output_messages": dump([message({"role": "assistant", "content": words})]) if words else "",
        }
    elif kind is SpanKind.TOOL:
        columns |= {
            "tool_name": attributes.get("tool_name", ""),
            "tool_call_id": attributes.get("tool_use_id", ""),
            "tool_arguments": _below(attributes.get("tool_input", "")),
            "tool_result": _below(attributes.get("new_context", "")),
        }
    return known(columns)


def _below(text: str) -> str:
    """What stands below the line ``[TOOL INPUT: name]`` or ``[TOOL RESULT: name]``."""
    return text.partition("\n")[2] if text.startswith("[TOOL ") else text


CLAUDE_CODE: Final = Dialect(
    name="claude_code",
    matches=attr(_TYPE).is_not_null() & pl.col("SpanName").str.starts_with("claude_code."),
    read=read,
    calls=({_TYPE: ("llm_request",), "SpanName": r"^claude_code\."},),
)
