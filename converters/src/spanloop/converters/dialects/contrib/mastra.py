"""Mastra: ``mastra.span.type`` says what a span is; a model call is two, one within the other.

``model_step`` has the messages, as Vercel's SDK spells them, and what was said; ``model_inference`` below it has the
parameters and the tokens, and repeats the words. Around them ``model_generation`` stands for the whole run, and is a
call only where no step of it was exported. Of tools that were called and answered the histories of later steps
have but the names.
"""

import re
from typing import Final

from spanloop.messages.chat_forms import messages, parts
from spanloop.messages.json_values import Fields, as_fields, as_list
from spanloop.semconv import attributes as names

from ...spans import SpanKind
from ..base import ColumnValue, Dialect, RawSpan, attr
from ..otel_genai import sources
from ..rows import as_text, as_unfinished, fields_of, first_messages

_TYPE: Final = "mastra.span.type"
_STEP: Final = "model_step"
_INFERENCE: Final = "model_inference"
_RUN: Final = "model_generation"
_RUN_ID: Final = "mastra.metadata.runId"
_INPUT: Final = "mastra.model_step.input"
_OUTPUT: Final = "mastra.model_step.output"
_MESSAGES: Final = frozenset({"input_messages", "output_messages", "system_instructions"})


def read(span: RawSpan) -> dict[str, ColumnValue]:
    """The canonical columns of a model call's two spans, and of the run that they are in."""
    attributes = span.attributes
    if attributes[_TYPE] == _RUN:
        return {"kind": str(SpanKind.OTHER)}
    columns: dict[str, ColumnValue] = {"kind": str(SpanKind.LLM)}
    if attributes[_TYPE] == _STEP:
        columns |= _step(span)
    elif "error" in span.columns.get("finish_reasons", ""):
        columns |= {"finish_reasons": "", "error_type": attributes.get(names.ERROR_TYPE, "") or "error"}
    return columns


def _step(span: RawSpan) -> dict[str, ColumnValue]:
    attributes = span.attributes
    request = first_messages(attributes, _INPUT)
    listed = as_list(as_fields(request).get("messages", request))
    seen = messages([entry for item in listed if (entry := _with_calls(as_fields(item)))] or as_unfinished(request))
    answer = fields_of(attributes.get(_OUTPUT, ""))
    answer_parts = [*parts(answer.get("text") or None), *parts(as_list(answer.get("toolCalls")) or None)]
    model = fields_of(attributes.get("mastra.metadata.modelMetadata", ""))
    response = fields_of(attributes.get("mastra.metadata.body", ""))
    return {
        "request_model": as_text(model.get("modelId")),
        "response_model": as_text(response.get("model")),
        "response_id": as_text(response.get("id")),
        "input_messages": seen,
        "output_messages": [{"role": "assistant", "parts": answer_parts}] if answer_parts else [],
    }


def _with_calls(fields: Fields) -> Fields:
    """A message of the history, with the calls that it names, which have lost their arguments; empty for an answer."""
    text = fields.get("content")
    if not isinstance(text, str):
        return fields
    if fields.get("role") == "tool":
        return {} if _ANSWER.sub("", text) == "" else fields
    called = _CALL.findall(text) if fields.get("role") == "assistant" else []
    if not called:
        return fields
    words = [{"type": "text", "content": rest}] if (rest := _CALL.sub("", text).strip()) else []
    return {"role": "assistant", "parts": [*words, *({"type": "tool_call", "name": name} for name in called)]}


_CALL: Final = re.compile(r"\[tool: ([^\]]*)\]")
_ANSWER: Final = re.compile(r"\[tool-result: [^\]]*\]|\s")

MASTRA: Final = Dialect(
    name="mastra",
    matches=attr(_TYPE).is_in([_STEP, _INFERENCE])
    | ((attr(_TYPE) == _RUN) & (attr(_TYPE) == _STEP).any().over(attr(_RUN_ID))),
    columns={column: keys for column, keys in sources().items() if column not in _MESSAGES},
    read=read,
    calls=({_TYPE: (_STEP, _INFERENCE)},),
)
