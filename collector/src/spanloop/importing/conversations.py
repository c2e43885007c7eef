"""Convert conversations in OpenAI's message format, one a line, to the spans of a live agent, and a score.

A line is an object with ``messages``, ``traj`` or ``conversations`` (in OpenAI's format, or one that `openai_messages`
converts), optionally ``tools``, ``reward``, ``task_id``, ``agent`` or ``name``, ``model``, and ``timestamp`` (ISO 8601,
or seconds since the epoch). Each assistant message becomes a model call, whose input is the messages before it. Each
tool message becomes a tool call. All are children of one ``invoke_agent`` span.

Invariant: ids depend only on the line's content without ``reward``, and on how often the same content occurred before.
So importing a file again changes nothing, and with another reward only the reward. Durations are unknown: the spans of
a conversation are one microsecond apart, in order, and have no duration.
"""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, cast

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span

from spanloop.foundation.surrogates import replace_surrogates
from spanloop.semconv import attributes as names
from spanloop.semconv.scores import SCORE_RANGE, is_valid_score

from . import atif
from .import_requests import Score, iso_nanoseconds, key_values
from .openai_messages import find_reward, to_openai_messages, without_reward
from .report import BadItemError

MESSAGE_KEYS: Final = ("messages", "traj", "conversations")
_ROLES: Final = {"function": "tool", "developer": "system"}
_KNOWN_ROLES: Final = frozenset({"system", "user", "assistant", "tool"})
_SERVICE_NAME: Final = "imported"
_ORDER_NS: Final = 1_000
"""Time between consecutive spans, nanoseconds: only their order is known."""


class Conversation(NamedTuple):
    """The spans and the score of one line."""

    request: ExportTraceServiceRequest
    score: Score | None


class _Call(NamedTuple):
    """A tool call whose result follows in a later message."""

    name: str
    arguments: str


class ConversationReader:
    """Converts the lines of one file; repeated lines become separate conversations."""

    def __init__(self) -> None:
        self._occurrences: Counter[bytes] = Counter()

    def read(self, line: Mapping[str, object], *, default_time_ns: int) -> Conversation:
        """Convert one line.

        Args:
            line: The decoded JSON object.
            default_time_ns: The time of a line without ``timestamp``, nanoseconds since the epoch.

        Raises:
            BadItemError: A value is invalid; nothing of the line is used.
        """
        key = next((key for key in MESSAGE_KEYS if line.get(key) is not None), MESSAGE_KEYS[0])
        openai_messages = to_openai_messages(_list(line.get(key), key), line)
        messages = [_message(item, f"{key}[{index}]") for index, item in enumerate(openai_messages)]
        if not any(message["role"] == "assistant" for message in messages):
            raise BadItemError("no_model_call", key, f"{len(messages)} messages", "at least one of role assistant")
        reward = _reward(find_reward(line))
        started_ns = _time(line, default_time_ns)
        tools = _tools(line.get("tools"))
        task_id = _plain_text(line.get("task_id"), "task_id")
        agent = _plain_text(line.get("agent"), "agent") or _plain_text(line.get("name"), "name")
        model = _plain_text(line.get("model"), "model")
        attributes = _attributes(messages, agent=agent, model=model, tools=tools)
        fields = ((each, None, 0) for each in attributes)
        return _conversation(self._identity(line), fields, started_ns=started_ns, task_id=task_id, reward=reward)

    def read_atif(self, trajectory: Mapping[str, object], *, default_time_ns: int) -> Conversation:
        """Convert a trajectory of ATIF; arguments and errors are those of `read`."""
        fields = list(atif.span_fields(trajectory))
        started_ns = next((start_ns for _, start_ns, _ in fields if start_ns is not None), default_time_ns)
        reward = _reward(atif.reward_of(trajectory))
        task_id = atif.task_of(trajectory)
        return _conversation(self._identity(trajectory), fields, started_ns=started_ns, task_id=task_id, reward=reward)

    def _identity(self, line: Mapping[str, object]) -> bytes:
        content = json.dumps(without_reward(line), sort_keys=True)
        digest = hashlib.blake2b(content.encode(), digest_size=16).digest()
        repetition = self._occurrences[digest]
        self._occurrences[digest] += 1
        return hashlib.blake2b(digest + repetition.to_bytes(8, "big"), digest_size=16).digest()


def _attributes(
    messages: Sequence[Mapping[str, object]], *, agent: str, model: str, tools: str
) -> Iterator[dict[str, object]]:
    """Yield the attributes of each span: the agent's first, then in the order of the messages."""
    yield _without_empty({names.GEN_AI_OPERATION_NAME: "invoke_agent", names.GEN_AI_AGENT_NAME: agent})
    # Each model call's input extends the previous one's, so each message is encoded once.
    encoded_messages: list[str] = []
    calls_by_id: dict[str, _Call] = {}
    for message in messages:
        canonical = {key: message[key] for key in ("role", "parts")}
        agent_name = str(message["name"] or agent)
        if message["role"] == "assistant":
            calls = {str(part["id"]): part for part in _parts(message) if part["type"] == "tool_call"}
            calls_by_id |= {key: _Call(str(part["name"]), str(part["arguments"])) for key, part in calls.items()}
            reason = str(message["finish_reason"] or ("tool_call" if calls else "stop"))
            yield _without_empty(
                {
                    names.GEN_AI_OPERATION_NAME: "chat",
                    names.GEN_AI_AGENT_NAME: agent_name,
                    names.GEN_AI_REQUEST_MODEL: model,
                    names.GEN_AI_RESPONSE_MODEL: model,
                    names.GEN_AI_RESPONSE_FINISH_REASONS: [reason],
                    names.GEN_AI_TOOL_DEFINITIONS: tools,
                    names.GEN_AI_INPUT_MESSAGES: f"[{','.join(encoded_messages)}]",
                    names.GEN_AI_OUTPUT_MESSAGES: f"[{_json({**canonical, 'finish_reason': reason})}]",
                }
            )
        elif message["role"] == "tool":
            for part in _parts(message):
                call_id = str(part["id"])
                call = calls_by_id.get(call_id, _Call("", ""))
                yield _without_empty(
                    {
                        names.GEN_AI_OPERATION_NAME: "execute_tool",
                        names.GEN_AI_AGENT_NAME: agent,
                        names.GEN_AI_TOOL_NAME: message["name"] or call.name,
                        names.GEN_AI_TOOL_CALL_ID: call_id,
                        names.GEN_AI_TOOL_CALL_ARGUMENTS: call.arguments,
                        names.GEN_AI_TOOL_CALL_RESULT: part["response"],
                    }
                )
        encoded_messages.append(_json(canonical))


def _conversation(
    identity: bytes, fields: Iterable[atif.SpanFields], *, started_ns: int, task_id: str, reward: float | None
) -> Conversation:
    """Return the spans, of which the first is the parent of the others, and the score.

    Args:
        identity: Trace id of the spans.
        fields: Attributes, start and duration of each; a span without a start begins behind the one before.
        started_ns: Start of the first span.
        task_id: The task; empty without one.
        reward: The score's value; None for no score.
    """
    episode_key = f"import-{identity.hex()}"
    common = {names.SPANLOOP_EPISODE_ID: episode_key, names.SPANLOOP_TASK_ID: task_id}
    common = {key: value for key, value in common.items() if value}
    spans: list[Span] = []
    next_ns = started_ns
    for number, (attributes, stated_ns, duration_ns) in enumerate(fields):
        start_ns = next_ns if stated_ns is None else stated_ns
        times_ns = (start_ns, start_ns + duration_ns)
        spans.append(_span(identity, number, times_ns, _without_empty(attributes) | common))
        next_ns = times_ns[1] + _ORDER_NS
    resource = Resource(attributes=key_values({names.SERVICE_NAME: _SERVICE_NAME}))
    scope = InstrumentationScope(name="spanloop.importing")
    request = ExportTraceServiceRequest(
        resource_spans=[ResourceSpans(resource=resource, scope_spans=[ScopeSpans(scope=scope, spans=spans)])]
    )
    if reward is None:
        return Conversation(request, None)
    score_id = hashlib.blake2b(identity + b"reward", digest_size=16).hexdigest()
    return Conversation(
        request, Score(score_id, reward, identity.hex(), episode_key, replace_surrogates(task_id), next_ns)
    )


def _span(identity: bytes, number: int, times_ns: tuple[int, int], attributes: dict[str, object]) -> Span:
    operation = str(attributes[names.GEN_AI_OPERATION_NAME])
    subject = attributes.get(
        {"chat": names.GEN_AI_REQUEST_MODEL, "execute_tool": names.GEN_AI_TOOL_NAME}.get(
            operation, names.GEN_AI_AGENT_NAME
        ),
        "",
    )
    return Span(
        trace_id=identity,
        span_id=_span_id(identity, number),
        parent_span_id=_span_id(identity, 0) if number else b"",
        name=replace_surrogates(f"{operation} {subject}".strip()),
        kind=Span.SpanKind.ValueType(3 if operation == "chat" else 1),
        start_time_unix_nano=times_ns[0],
        end_time_unix_nano=times_ns[1],
        attributes=key_values(attributes),
    )


def _span_id(identity: bytes, number: int) -> bytes:
    return hashlib.blake2b(identity + number.to_bytes(8, "big"), digest_size=8).digest()


def _message(item: object, where: str) -> Mapping[str, object]:
    """Return ``{"role", "parts", "name", "finish_reason"}``, with OpenTelemetry's parts."""
    if not isinstance(item, dict):
        raise BadItemError("bad_message", where, item, "an object with role and content")
    fields = cast("dict[str, object]", item)
    given_role = fields.get("role")
    role = _ROLES.get(given_role, given_role) if isinstance(given_role, str) else None
    if role not in _KNOWN_ROLES:
        raise BadItemError("bad_message", f"{where}.role", given_role, f"one of {', '.join(sorted(_KNOWN_ROLES))}")
    name = _plain_text(fields.get("name"), f"{where}.name")
    content = _content(fields.get("content"), f"{where}.content")
    if role == "tool":
        response = content[0]["content"] if len(content) == 1 and content[0]["type"] == "text" else _json(content)
        call_id = _plain_text(fields.get("tool_call_id"), f"{where}.tool_call_id")
        failed = {"is_error": True} if fields.get("is_error") is True else {}
        parts = [{"type": "tool_call_response", "id": call_id, "response": response if content else "", **failed}]
    else:
        parts = content + (_tool_calls(fields, where) if role == "assistant" else [])
    reason = _plain_text(fields.get("finish_reason"), f"{where}.finish_reason")
    return {"role": role, "parts": parts, "name": name, "finish_reason": reason}


def _content(content: object, where: str) -> list[dict[str, object]]:
    if content is None or content == "":
        return []
    if isinstance(content, str):
        return [{"type": "text", "content": content}]
    return [_part(item, f"{where}[{index}]") for index, item in enumerate(_list(content, where))]


def _part(item: object, where: str) -> dict[str, object]:
    if isinstance(item, str):
        return {"type": "text", "content": item}
    if not isinstance(item, dict):
        raise BadItemError("bad_message", where, item, "text or a content part")
    part = cast("dict[str, object]", item)
    text = part.get("text", part.get("content"))
    # Other parts (images, audio) stay unchanged.
    return {"type": "text", "content": text} if isinstance(text, str) else {"type": "unknown", **part}


def _tool_calls(fields: Mapping[str, object], where: str) -> list[dict[str, object]]:
    tool_calls: list[dict[str, object]] = []
    calls = fields.get("tool_calls")
    for index, item in enumerate(_list(calls, f"{where}.tool_calls") if calls is not None else []):
        call = cast("dict[str, object]", item) if isinstance(item, dict) else {}
        tool_calls.append(_tool_call(call.get("function"), call.get("id"), f"{where}.tool_calls[{index}]"))
    if (legacy := fields.get("function_call")) is not None:
        tool_calls.append(_tool_call(legacy, None, f"{where}.function_call"))
    return tool_calls


def _tool_call(function: object, call_id: object, where: str) -> dict[str, object]:
    fields = cast("dict[str, object]", function) if isinstance(function, dict) else {}
    name, arguments = fields.get("name"), fields.get("arguments")
    if not isinstance(name, str):
        raise BadItemError("bad_message", f"{where}.function.name", name, "the name of the tool")
    # Arguments that are not JSON are the model's output, so they stay as text.
    text = arguments if isinstance(arguments, str) else "" if arguments is None else _json(arguments)
    return {"type": "tool_call", "id": _plain_text(call_id, f"{where}.id"), "name": name, "arguments": text}


def _parts(message: Mapping[str, object]) -> list[dict[str, object]]:
    return cast("list[dict[str, object]]", message["parts"])


def _tools(value: object) -> str:
    """Return tool definitions in OpenTelemetry's form: the ``function`` of each of OpenAI's."""
    if value is None:
        return ""
    definitions: list[object] = []
    for index, item in enumerate(_list(value, "tools")):
        tool = cast("dict[str, object]", item) if isinstance(item, dict) else {}
        function = tool.get("function", tool)
        fields = cast("dict[str, object]", function) if isinstance(function, dict) else {}
        if not isinstance(fields.get("name"), str):
            raise BadItemError("bad_tools", f"tools[{index}]", fields or tool, "a tool definition with a name")
        definitions.append({"type": "function", **fields})
    return _json(definitions) if definitions else ""


def _reward(value: object) -> float | None:
    if value is None:
        return None
    try:
        reward = float(value) if isinstance(value, int | float) else math.nan
    except OverflowError:
        reward = math.inf
    if not is_valid_score(reward):
        raise BadItemError("bad_reward", "reward", value, SCORE_RANGE)
    return reward


def _time(line: Mapping[str, object], default_ns: int) -> int:
    value = line.get("timestamp")
    if value is None:
        return default_ns
    if isinstance(value, int | float) and not isinstance(value, bool):
        if not 0 <= value < 2**33:
            raise BadItemError("bad_time", "timestamp", value, "seconds since 1970, or an ISO 8601 time")
        return int(value * 1_000_000) * 1_000
    return iso_nanoseconds(value, "timestamp")


def _plain_text(value: object, where: str) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise BadItemError("wrong_type", where, value, "text")


def _list(value: object, where: str) -> Sequence[object]:
    if not isinstance(value, list):
        raise BadItemError("wrong_type", where, value, "a list")
    return cast("list[object]", value)


def _without_empty(attributes: Mapping[str, object]) -> dict[str, object]:
    return {key: value for key, value in attributes.items() if value is not None and value != ""}


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
