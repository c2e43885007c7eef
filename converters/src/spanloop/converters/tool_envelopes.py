"""What tool spans wrap around a call's arguments and its answer, taken off: LangChain's and traceloop's envelopes.

Invariant: text in no known envelope comes back as it is. Arguments that are a Python repr come back as JSON.
"""

import ast
import re
from typing import Final, NamedTuple, cast

from .chat_forms import Fields, as_fields, opened, plain, python_object
from .messages import MalformedMessagesError, dump, parse_json

_MESSAGE_REPR: Final = re.compile(r"""content=('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")(?=\s\w+=|$)""", re.DOTALL)
_ID_IN_REPR: Final = re.compile(r"""\btool_call_id='([^']*)'""")
_ERROR_IN_REPR: Final = re.compile(r"""\bstatus='error'""")
_ENVELOPES: Final = ("lc", "output", "outputs", "data")


class Answer(NamedTuple):
    """What a tool span says that came back."""

    content: str
    tool_call_id: str
    """Empty where the envelope names none."""
    has_failed: bool
    """Whether the envelope says so."""


def open_answer(text: str) -> Answer:
    """The answer inside ``text``."""
    if text.startswith("content="):
        return _open_repr(text)
    if not text.startswith("{"):
        return Answer(text, "", has_failed=False)
    try:
        found = parse_json(text)
    except MalformedMessagesError:
        return Answer(text, "", has_failed=False)
    if not isinstance(found, dict) or not any(key in found for key in _ENVELOPES):
        return Answer(text, "", has_failed=False)
    return _open_object(text, cast("Fields", found))


def _open_object(text: str, fields: Fields) -> Answer:
    # traceloop's {"output": …, "kwargs": {"tags": …}} around what the tool gave back, itself often a LangChain message.
    held = fields.get("output") if "kwargs" in fields and "lc" not in fields else fields
    if isinstance(held, str):
        return open_answer(held) if held.startswith("content=") else Answer(held, "", has_failed=False)
    message = opened(as_fields(held))
    if message is fields or "content" not in message:
        return Answer(text if held is fields else dump(held), "", has_failed=False)
    content, identity = plain(message["content"]), message.get("tool_call_id")
    return Answer(
        content if isinstance(content, str) else dump(content),
        identity if isinstance(identity, str) else "",
        has_failed=message.get("status") == "error",
    )


def _open_repr(text: str) -> Answer:
    """``str()`` of a LangChain message: ``content='…' name='…' tool_call_id='…'``."""
    found = _MESSAGE_REPR.match(text)
    if found is None:
        return Answer(text, "", has_failed=False)
    identity = _ID_IN_REPR.search(text, found.end())
    failed = _ERROR_IN_REPR.search(text, found.end()) is not None
    return Answer(str(ast.literal_eval(found.group(1))), identity.group(1) if identity else "", has_failed=failed)


def open_arguments(text: str) -> str:
    """The arguments inside ``text``, as JSON where they are an object."""
    if not text.startswith("{"):
        return text
    try:
        found = parse_json(text)
    except MalformedMessagesError:
        literal = python_object(text)
        return dump(cast("Fields", literal)) if isinstance(literal, dict) else text
    fields = cast("Fields", found) if isinstance(found, dict) else {}
    if isinstance(fields.get("input_str"), str) and ("tags" in fields or "metadata" in fields or "inputs" in fields):
        inner = fields.get("inputs")
        return (
            dump(cast("Fields", inner)) if isinstance(inner, dict) else open_arguments(cast("str", fields["input_str"]))
        )
    if fields.get("args") == [] and isinstance(fields.get("kwargs"), dict):
        return dump(fields["kwargs"])
    return text
