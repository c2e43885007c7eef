"""Messages in span events and log events: ``gen_ai.user.message`` …, ``gen_ai.choice``, ``gen_ai.content.prompt``.

Invariant: events tell messages in the order in which they came; an answer that stands twice is read once.
"""

from collections.abc import Mapping, Sequence
from typing import Final, cast

from spanloop.messages.chat_forms import message, messages
from spanloop.messages.json_values import Fields, as_fields, as_list

from .base import BODY
from .rows import as_text, decoded, decoded_content, decoded_messages

_ROLE_OF_EVENT: Final = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
    "gen_ai.choice": "assistant",
}


def payload_of(values: Mapping[str, str]) -> Fields:
    """Return the payload of an event: its attributes, and the JSON objects that stand in its body or content."""
    payload: Fields = {key: value for key, value in values.items() if key != BODY}
    for key in ("gen_ai.event.content", BODY):
        body = decoded_messages(values.get(key, ""), key)
        if isinstance(body, dict):
            payload |= cast("Fields", body)
        elif isinstance(body, str) and body and "content" not in payload:
            payload["content"] = body
    for key in ("content", "message", "tool_calls", "function_call"):
        text = payload.get(key)
        if isinstance(text, str) and text.lstrip()[:1] in {"{", "["} and not (key == "content" and "id" in payload):
            payload[key] = (decoded_content if key == "content" else decoded_messages)(text, f"{key} of an event")
    return payload


def listed_events(text: str) -> list[tuple[str, Fields]]:
    """The events in the attribute ``events``, by name."""
    listed = decoded(text) if text else None
    if not isinstance(listed, list):
        return []
    items = [cast("Fields", item) for item in cast("list[object]", listed) if isinstance(item, dict)]
    return [(as_text(item.get("event.name")), item) for item in items]


def event_inputs(events: Sequence[tuple[str, Fields]]) -> list[Fields]:
    """The messages of a call's input that its events tell."""
    inputs: list[Fields] = []
    for name, payload in events:
        if name == "gen_ai.content.prompt":
            # Langtrace puts a list of empty ids where the model's calls were: no message.
            listed = decoded_messages(as_text(payload.get("gen_ai.prompt")), "gen_ai.prompt")
            inputs += messages([item for item in as_list(listed) if not isinstance(item, list)] or listed)
        elif name in _ROLE_OF_EVENT and name != "gen_ai.choice":
            inputs.append(event_message(_ROLE_OF_EVENT[name], payload))
    return _without_repeats(inputs)


def event_outputs(events: Sequence[tuple[str, Fields]]) -> list[Fields]:
    """The choices that a call's events tell, in the order of their indexes."""
    outputs: list[tuple[int, Fields]] = []
    for name, payload in events:
        if name == "gen_ai.content.completion":
            listed = decoded_messages(as_text(payload.get("gen_ai.completion")), "gen_ai.completion")
            listed_messages = messages(list(map(_with_calls_in_text, as_list(listed))) or listed, "assistant")
            outputs += [(len(outputs) + number, item) for number, item in enumerate(listed_messages)]
        elif name == "gen_ai.choice":
            index = as_text(payload.get("index"))
            nested = payload.get("message")
            inner = (
                {**payload, **cast("Fields", nested)} if isinstance(nested, dict) else {"content": nested, **payload}
            )
            if not _has_arguments(inner):
                continue
            item = event_message("assistant", inner)
            reason = payload.get("finish_reason")
            number = int(index) if index.isascii() and index.isdigit() else len(outputs)
            outputs.append((number, item | ({"finish_reason": as_text(reason)} if reason else {})))
    return [item for _, item in sorted(outputs, key=lambda pair: pair[0]) if item["parts"]]


def _with_calls_in_text(item: object) -> object:
    """In JavaScript Langtrace puts the model's calls, as JSON, where its words would be."""
    fields = as_fields(item)
    text = fields.get("content")
    if not isinstance(text, str) or not text.startswith('[{"id":'):
        return item
    calls = as_list(decoded(text))
    is_call_list = bool(calls) and all(as_fields(as_fields(call).get("function")).get("name") for call in calls)
    return {**fields, "content": None, "tool_calls": calls} if is_call_list else item


def _has_arguments(payload: Fields) -> bool:
    """Whether the tool calls of a choice have them: with content capture off they are left out."""
    calls = [as_fields(call) for call in as_list(payload.get("tool_calls"))]
    return all("arguments" in (as_fields(call.get("function")) or call) for call in calls)


def _without_repeats(inputs: Sequence[Fields]) -> list[Fields]:
    """Botocore tells a tool's answer twice: as what the tool said, and within what the user said then."""
    kept: list[Fields] = []
    answers: dict[str, Fields] = {}
    for item in inputs:
        answers_by_id = {as_text(part.get("id")): part for part in map(as_fields, as_list(item["parts"]))}
        if item["role"] != "tool" or "" in answers_by_id or not answers_by_id.keys() <= answers.keys():
            kept.append(item)
            answers |= answers_by_id if item["role"] == "tool" else {}
            continue
        for identity, part in answers_by_id.items():
            if part.get("is_error") is True:
                answers[identity]["is_error"] = True
    return kept


def event_message(role: str, payload: Fields) -> Fields:
    """The message of one event."""
    body = {
        key: payload[key]
        for key in ("content", "tool_calls", "function_call", "name", "refusal")
        if payload.get(key) is not None
    }
    if "content" not in body and isinstance(payload.get("parts"), list):
        body["parts"] = payload["parts"]
    if role == "tool":
        body["tool_call_id"] = payload.get("id") or payload.get("tool_call_id") or ""
        body.setdefault("content", "")
    return message({"role": role, **body}, role)
