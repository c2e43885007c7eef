"""One decoded message, in OpenTelemetry's form or as chat APIs and frameworks spell it → ``Message``."""

from json import JSONEncoder
from operator import is_not
from typing import Final, cast

import msgspec

from . import chat_forms
from .codec import MalformedMessagesError, dump, parse_json, parse_json_or_none, text_of
from .hosted_tools import hosted_answer, hosted_call
from .json_values import Fields
from .model import Message, ToolCall, ToolResponse
from .unfinished import UNFINISHED, is_unfinished

REDACTED_MARKERS: Final = ("__REDACTED__", "[REDACTED]", "<REDACTED>")
_SORTED: Final = JSONEncoder(sort_keys=True)
_ENCODE_SORTED: Final = msgspec.json.Encoder(order="deterministic").encode
_KNOWN_FORMS: Final = frozenset({"content", "tool_calls", "function_call", "lc", "data", "message"})
_BESIDE_PARTS: Final = ("tool_calls", "tool_call_id", "function_call")
_KNOWN_TYPES: Final = frozenset({"function_call", "function_call_output", "reasoning"})


def read_message(item: object, known: dict[str, Message]) -> Message:
    """The message of a decoded object, of which parts may be spelled otherwise; one with the same JSON is the same.

    Args:
        item: Any JSON value; it is not changed.
        known: The messages that were read, by their JSON; a new one is added.

    Raises:
        MalformedMessagesError: When it is no message, or a part holds text that was cut within a message list.
    """
    if not isinstance(item, dict):
        raise MalformedMessagesError(f"expected a message object, got {type(item).__name__}")
    fields: Fields = item  # pyright: ignore[reportUnknownVariableType]
    is_plain = len(fields) == 2 and "role" in fields and "parts" in fields
    if not is_plain and (("parts" not in fields and _is_known_form(fields)) or any(map(fields.get, _BESIDE_PARTS))):
        fields = chat_forms.message(fields)
    role, given = fields.get("role"), fields.get("parts", _NO_PARTS)
    if not isinstance(role, str) or not isinstance(given, list):
        raise MalformedMessagesError("expected a message with a text 'role' and a list 'parts'")
    content = _Content([], [], [], [chat_forms.canonical_role(role)])
    parts: list[object] = given  # pyright: ignore[reportUnknownVariableType]
    canonical = [_read_part(part, content) for part in parts]
    if any(map(is_not, canonical, parts)):
        fields = {**fields, "parts": canonical}
    json = dump(fields)
    return known.get(json) or known.setdefault(json, _message(fields, content, json))


_NO_PARTS: Final[list[object]] = []


class _Content(msgspec.Struct, gc=False):
    """Content of the parts of a message."""

    texts: list[str]
    calls: list[ToolCall]
    responses: list[ToolResponse]
    seen: list[str]
    """See ``Message.content``."""


def _message(fields: Fields, content: _Content, json: str) -> Message:
    texts, responses, seen = content.texts, content.responses, content.seen
    text = texts[0] if len(texts) == 1 else "".join(texts)
    seen += "text:", text.strip()
    is_redacted = "REDACTED" in json and any(map(_is_redacted, (text, *(response.content for response in responses))))
    reason = fields.get("finish_reason")
    reason = text_of(reason) if reason else ""
    return Message(seen[0], text, tuple(content.calls), tuple(responses), reason, json, tuple(seen), is_redacted)


def _read_part(item: object, content: _Content) -> object:
    """Add a part to ``content``; the part in OpenTelemetry's form, ``item`` itself where it is in that form."""
    result: object = item
    part: Fields = item if isinstance(item, dict) else {"type": "text", "content": item}  # pyright: ignore[reportUnknownVariableType]
    kind = part.get("type")
    if kind not in chat_forms.CANONICAL_PARTS or "text" in part:
        canonical = chat_forms.part(part)
        if kind == UNFINISHED:
            raise _unfinished_error(part)
        if canonical is not part:
            result = part = cast("Fields", canonical)
            kind = part.get("type")
    if kind == "text":
        text = part.get("content", "")
        content.texts.append(text if isinstance(text, str) else text_of(text))
    elif kind == "tool_call":
        return _read_call(result, part, content)
    elif kind == "tool_call_response":
        answer = part.get("response", part.get("result"))
        if not isinstance(answer, str):
            # Bedrock's and Strands' answers are lists of text blocks.
            answer = text_of(chat_forms.plain(cast("object", answer)) if isinstance(answer, list) else answer)
        content.responses.append(ToolResponse(text_of(part.get("id")), answer))
        content.seen += "response:", answer
    else:
        content.seen += "", _SORTED.encode(part)
        if kind != "reasoning":
            _add_hosted(part, content)
    return result


def _read_call(item: object, part: Fields, content: _Content) -> object:
    """Add a call; its part with arguments that are an object rather than JSON text."""
    given = part.get("arguments")
    name, identity = text_of(part.get("name")), text_of(part.get("id"))
    arguments: object = {} if given is None or given == "" else given
    if isinstance(arguments, str):
        arguments = parse_json_or_none(arguments)
    if not isinstance(arguments, dict):
        text = given if isinstance(given, str) else dump(given)
        content.calls.append(ToolCall(identity, name, text, is_valid=False))
        content.seen += "call:", f"{name}:{text}"
        return item
    fields: Fields = arguments  # pyright: ignore[reportUnknownVariableType]
    json = dump(fields)
    content.calls.append(ToolCall(identity, name, json, is_valid=True))
    content.seen += "call:", f"{name}:{_canonical(fields, json)}"
    return {**part, "arguments": fields} if fields and fields is not given else item


def system_fields(text: str) -> Fields:
    """The system message that ``gen_ai.system_instructions`` (a list of parts, or plain text) stands for.

    Raises:
        MalformedMessagesError: When the text is the beginning of a list.
    """
    try:
        value = parse_json(text)
        value = parse_json(value) if isinstance(value, str) and value[:1] in {"[", "{"} else value
    except MalformedMessagesError as error:
        if is_unfinished(text):
            raise MalformedMessagesError(f"gen_ai.system_instructions: {error}") from error
        value = text
    parts = cast("list[object]", value) if isinstance(value, list) else [{"type": "text", "content": text}]
    return {"role": "system", "parts": parts}


def _is_known_form(fields: Fields) -> bool:
    return not _KNOWN_FORMS.isdisjoint(fields) or fields.get("type") in _KNOWN_TYPES


def _add_hosted(part: Fields, content: _Content) -> None:
    """Add the call and the answer that a part of a provider's own type stands for."""
    if call := hosted_call(part):
        content.calls.append(call)
    if answer := hosted_answer(part):
        content.responses.append(answer.response)


def _unfinished_error(part: Fields) -> MalformedMessagesError:
    text = str(part.get("content"))
    where = f"{part.get('attribute')}: expected messages as JSON, got {len(text)} characters that stop within a value"
    error = MalformedMessagesError(f"{where} (cut at an attribute limit?): {text[:80]!r}")
    error.cut_text = text
    return error


def _canonical(arguments: Fields, json: str) -> str:
    """The same text for equal arguments, whatever the order of their keys in ``json``."""
    if not arguments:
        return "{}"
    if len(arguments) == 1 and not isinstance(next(iter(arguments.values())), (dict, list)):
        return json
    try:
        return _ENCODE_SORTED(arguments).decode()
    except (UnicodeEncodeError, TypeError):
        return _SORTED.encode(arguments)


def _is_redacted(text: str) -> bool:
    return any(marker in text for marker in REDACTED_MARKERS)
