"""Envelopes of LangChain and traceloop around a call's arguments and its answer in tool spans, removed.

Invariant: text in no known envelope comes back as it is. Arguments that are a Python repr come back as JSON.
"""

import ast
import re
from typing import Final, NamedTuple, cast

from spanloop.foundation.surrogates import replace_surrogates
from spanloop.messages import dump, parse_json_or_none
from spanloop.messages.chat_forms import opened, plain
from spanloop.messages.json_values import Fields, as_fields, python_object

_MESSAGE_REPR: Final = re.compile(r"""content=('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")(?=\s\w+=|$)""", re.DOTALL)
_ID_IN_REPR: Final = re.compile(r"""\btool_call_id='([^']*)'""")
_ERROR_IN_REPR: Final = re.compile(r"""\bstatus='error'""")
_ENVELOPES: Final = frozenset({"lc", "output", "outputs", "data", "raw_output", "tool_output"})


class Answer(NamedTuple):
    """The answer in a tool span."""

    content: str
    tool_call_id: str = ""
    """Empty where the envelope has none."""
    has_failed: bool = False
    """Whether the envelope marks the call as failed."""


def open_answer(text: str) -> Answer:
    """The answer inside ``text``."""
    if text.startswith("content="):
        return _open_repr(text)
    fields = as_fields(parse_json_or_none(text)) if text.startswith("{") else {}
    return _open_object(text, fields) if not _ENVELOPES.isdisjoint(fields) else Answer(text)


def _open_object(text: str, fields: Fields) -> Answer:
    result = as_fields(fields.get("tool_output")) or fields
    if "raw_output" in result and "tool_name" in result:
        return _open_tool_output(result, fields.get("tool_id"))
    # traceloop's {"output": …, "kwargs": {"tags": …}} around what the tool gave back, itself often a LangChain message.
    held = fields.get("output") if "kwargs" in fields and "lc" not in fields else fields
    if isinstance(held, str):
        return open_answer(held) if held.startswith("content=") else Answer(held)
    message = opened(as_fields(held))
    if message is fields or "content" not in message:
        return Answer(text if held is fields else dump(held))
    content, identity = plain(message["content"]), message.get("tool_call_id")
    return Answer(
        content if isinstance(content, str) else dump(content),
        identity if isinstance(identity, str) else "",
        has_failed=message.get("status") == "error",
    )


def _open_tool_output(result: Fields, identity: object) -> Answer:
    """LlamaIndex's ``ToolOutput``: what the model is shown is in its blocks, or once in ``content``."""
    shown = plain(result.get("blocks") or result.get("content") or result.get("raw_output"))
    return Answer(
        shown if isinstance(shown, str) else dump(shown),
        identity if isinstance(identity, str) else "",
        has_failed=result.get("is_error") is True,
    )


def _open_repr(text: str) -> Answer:
    """``str()`` of a LangChain message: ``content='…' name='…' tool_call_id='…'``."""
    match = _MESSAGE_REPR.match(text)
    if match is None:
        return Answer(text)
    identity = _ID_IN_REPR.search(text, match.end())
    failed = _ERROR_IN_REPR.search(text, match.end()) is not None
    content = replace_surrogates(str(ast.literal_eval(match.group(1))))
    return Answer(content, identity.group(1) if identity else "", has_failed=failed)


def open_arguments(text: str) -> str:
    """The arguments inside ``text``, as JSON where they are an object."""
    if not text.startswith("{"):
        return text
    parsed = parse_json_or_none(text)
    if parsed is None:
        literal = as_fields(python_object(text))
        return dump(literal) if literal else text
    fields = as_fields(parsed)
    if isinstance(fields.get("input_str"), str) and ("tags" in fields or "metadata" in fields or "inputs" in fields):
        inner = fields.get("inputs")
        return (
            dump(cast("Fields", inner)) if isinstance(inner, dict) else open_arguments(cast("str", fields["input_str"]))
        )
    if fields.get("args", []) == [] and fields.keys() <= {"args", "kwargs"} and isinstance(fields.get("kwargs"), dict):
        return dump(fields["kwargs"])
    return text
