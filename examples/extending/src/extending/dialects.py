"""The spans of a small tracer of one's own: ``acme.kind``, messages as JSON, tools by name."""

import polars as pl

from spanloop.converters.dialects import Dialect, RawSpan, attr


def read(span: RawSpan) -> dict[str, str]:
    """What the table below cannot tell: this tracer writes the answer as plain text."""
    answer = span.attributes.get("acme.answer", "")
    return {"output_messages": f"[{_message(answer)}]"} if answer else {}


def _message(text: str) -> str:
    parts = pl.Series([{"role": "assistant", "parts": [{"type": "text", "content": text}]}])
    return str(parts.struct.json_encode().item())


ACME = Dialect(
    name="acme",
    matches=attr("acme.kind").is_not_null(),
    columns={
        "kind": attr("acme.kind").replace_strict({"model": "llm", "tool": "tool"}, default="other"),
        "request_model": ("acme.model", "acme.deployment"),
        "input_messages": ("acme.messages",),
        "finish_reasons": ("acme.stop",),
        "tool_name": ("acme.tool",),
    },
    read=read,
    calls=({"acme.kind": ("model",)},),
)
