"""Generative AI spans as they were written before messages became one JSON attribute.

Read here: numbered attributes (``gen_ai.prompt.N.*``, ``gen_ai.completion.N.*``, ``llm.prompts.N.*``), whole-text
attributes (``gen_ai.prompt``), span events and log events (``gen_ai.user.message`` …, ``gen_ai.choice``,
``gen_ai.content.prompt``, ``gen_ai.client.inference.operation.details``), the attribute ``events`` that holds such
events as JSON, and spans that only ``traceloop.*`` describes. What is structured JSON already is taken as it is.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, cast

import polars as pl

from spanloop.messages import dump
from spanloop.messages.chat_forms import message, messages, tool_call
from spanloop.messages.json_values import Fields, as_fields, as_list
from spanloop.messages.turns import joined_turns, split_answers
from spanloop.semconv import attributes as names

from ..spans import SpanKind
from .base import ColumnValue, Dialect, IndexedList, RawSpan, attr
from .legacy_events import event_inputs, event_message, event_outputs, listed_events, payload_of
from .legacy_tools import FUNCTIONS, offered_tools
from .otel_genai import AGENT_OPERATIONS, LLM_OPERATIONS, SOURCES, sources
from .provider_payloads import request_messages, request_tools, response_columns, response_messages
from .rows import (
    as_text,
    decoded,
    decoded_content,
    decoded_messages,
    fields_of,
    is_set,
    known,
    of_keys,
    parameters,
)

PROMPTS: Final = ("gen_ai.prompt", "llm.prompts")
COMPLETIONS: Final = ("gen_ai.completion", "llm.completions")
_FLAT_MARKS: Final = tuple(f"{prefix}.0.{end}" for prefix in (*PROMPTS, *COMPLETIONS) for end in ("role", "content"))
REQUEST_TYPES: Final = ("llm.request.type", "gen_ai.request.type")
TRACELOOP_KIND: Final = "traceloop.span.kind"
EVENTS: Final = "events"
ALTERNATIVES: Final = {
    "request_model": ("llm.request.model", "model_name"),
    "response_model": ("llm.response.model",),
    "finish_reasons": (
        "gen_ai.response.finish_reason",
        "llm.response.finish_reason",
        "gen_ai.response.stop_reason",
        "gen_ai.completion.0.finish_reason",
    ),
    "is_streaming": ("gen_ai.is_streaming", "llm.is_streaming"),
    "temperature": ("llm.temperature", "llm.request.temperature"),
    "top_p": ("llm.top_p", "llm.request.top_p", "gen_ai.request.top_p"),
    "max_tokens": ("llm.request.max_tokens", "gen_ai.request.max_completion_tokens"),
    "seed": ("gen_ai.openai.request.seed",),
    "input_tokens": ("gen_ai.usage.prompt_tokens", "llm.usage.prompt_tokens"),
    "output_tokens": ("gen_ai.usage.completion_tokens", "llm.usage.completion_tokens"),
    "agent_name": ("agent_name", "traceloop.agent.name", "traceloop.association.properties.lc_agent_name"),
    "conversation_id": ("traceloop.association.properties.thread_id",),
    "tool_arguments": ("tool_arguments", "tool.arguments", "gen_ai.tool.arguments", "traceloop.entity.input"),
    "tool_result": ("tool_response", "tool.result", "gen_ai.tool.result", "traceloop.entity.output"),
}
DETAILS: Final = "gen_ai.client.inference.operation.details"


def read(span: RawSpan) -> dict[str, ColumnValue]:
    """Return the columns of one span in a legacy form that its table of attributes lacks."""
    kind = span.columns["kind"]
    if kind == SpanKind.TOOL.value:
        return {**_tool_events(span)}
    if kind != SpanKind.LLM.value:
        return {}
    content = _content(span)
    if RESPAN in span.attributes and not (content.get("finish_reasons") or span.columns.get("finish_reasons")):
        # It never records why an answer ended: that this is missing says nothing about a stream.
        content["is_streaming"] = ""
    return content


RESPAN: Final = "respan.entity.log_type"
"""On the spans of Respan's own instrumentors, which write numbered attributes with JSON in them."""

_KIND_OF_OPERATION: Final = {
    **dict.fromkeys(LLM_OPERATIONS, SpanKind.LLM),
    **dict.fromkeys(AGENT_OPERATIONS, SpanKind.AGENT),
    "execute_tool": SpanKind.TOOL,
    "embeddings": SpanKind.OTHER,
    "invoke_workflow": SpanKind.OTHER,
}
_KIND_OF_TRACELOOP: Final = {"tool": SpanKind.TOOL, "agent": SpanKind.AGENT}
_KIND_OF_REQUEST: Final = {
    "chat": SpanKind.LLM,
    "completion": SpanKind.LLM,
    "embedding": SpanKind.OTHER,
    "embeddings": SpanKind.OTHER,
    "rerank": SpanKind.OTHER,
}
_ANSWERED: Final = (
    names.GEN_AI_RESPONSE_ID,
    names.GEN_AI_RESPONSE_FINISH_REASONS,
    names.GEN_AI_USAGE_OUTPUT_TOKENS,
    "gen_ai.usage.completion_tokens",
    names.ERROR_TYPE,
)


def _kind_of(keys: Sequence[str], kinds: Mapping[str, SpanKind]) -> pl.Expr:
    values = {name: kind.value for name, kind in kinds.items()}
    return of_keys(keys).replace_strict(values, default=None, return_dtype=pl.String)


_is_requested: Final = is_set(names.GEN_AI_REQUEST_MODEL)
_has_no_operation: Final = ~is_set(names.GEN_AI_OPERATION_NAME)
_has_messages: Final = (
    pl.any_horizontal(attr(key).is_not_null() for key in _FLAT_MARKS)
    | (is_set("gen_ai.prompt") & is_set("gen_ai.completion") & _is_requested & _has_no_operation)
    | (pl.col("Events.Name").list.contains("gen_ai.choice").fill_null(value=False) & _is_requested)
)
_TOOL_OUTPUT: Final = attr("traceloop.entity.output")
_is_tool_output: Final = (
    _TOOL_OUTPUT.str.contains(r'^\{"(?:blocks|content|tool_name)":')
    & _TOOL_OUTPUT.str.contains('"raw_output":', literal=True)
).fill_null(value=False)
"""LlamaIndex's results of tools, on spans that OpenLLMetry calls tasks: its workflow's, and the tool's own below."""

KIND: Final = pl.coalesce(
    _kind_of((names.GEN_AI_OPERATION_NAME,), _KIND_OF_OPERATION),
    _kind_of((TRACELOOP_KIND,), _KIND_OF_TRACELOOP),
    _kind_of(REQUEST_TYPES, _KIND_OF_REQUEST),
    pl.when(_has_messages).then(pl.lit(SpanKind.LLM.value)),
    pl.when(_is_tool_output).then(pl.lit(SpanKind.TOOL.value)),
    pl.when(is_set(names.GEN_AI_TOOL_NAME)).then(pl.lit(SpanKind.TOOL.value)),
    pl.when(is_set("agent_name") | is_set(names.GEN_AI_AGENT_NAME)).then(pl.lit(SpanKind.AGENT.value)),
    pl.when(_is_requested & _has_no_operation & pl.any_horizontal(attr(key).is_not_null() for key in _ANSWERED))
    .then(pl.lit(SpanKind.LLM.value))
    .otherwise(pl.lit(SpanKind.OTHER.value)),
)
"""Kind of a span: by its operation, else by what it has."""


def _content(span: RawSpan) -> dict[str, ColumnValue]:
    attributes, columns = span.attributes, span.columns
    events = [
        *listed_events(attributes.get(EVENTS, "")),
        *((name, payload_of(values)) for name, values in span.events),
    ]
    output = (
        _flat(span.lists.get("said", ()), "assistant")
        or event_outputs(events)
        or _whole(attributes, "gen_ai.completion", "assistant")
        or response_messages(_entity(attributes, "output"))
    )
    response = fields_of(attributes.get("response", "")) if EVENTS in attributes else {}
    seen = columns.get("input_messages") or _seen(span.lists.get("seen", ()))
    if not seen or (response and not output):
        listed = (
            _flat(span.lists.get("seen", ()), "user")
            or event_inputs(events)
            or _whole(attributes, "gen_ai.prompt", "user")
            or request_messages(_entity(attributes, "input"))
        )
        if not output and response:
            listed, output = _without_answer(listed)
        seen = columns.get("input_messages") or split_answers(listed)
    output = _with_requested_calls(
        output,
        [
            call
            for name, payload in events
            if name == REQUESTED_CALLS
            for call in as_list(decoded(as_text(payload.get("calls"))))
        ],
    )
    reason = next((as_text(item["finish_reason"]) for item in output if item.get("finish_reason")), "")
    reason, tools = columns.get("finish_reasons") or reason, columns.get("tools") or offered_tools(span)
    if not reason and attributes.get("gen_ai.request.stream", "").lower() == "true" and _are_arguments(output, tools):
        output = []
    content_columns: dict[str, ColumnValue] = {
        **(_beside(attributes, response) if response else {}),
        **known({"finish_reasons": reason, "tools": tools}),
        "input_messages": seen,
        "output_messages": columns.get("output_messages") or output,
    }
    for detail in (payload for name, payload in events if name == DETAILS):
        for column in ("input_messages", "output_messages", "system_instructions", "tools"):
            if not content_columns.get(column) and not columns.get(column) and detail.get(SOURCES[column]):
                content_columns[column] = as_text(detail[SOURCES[column]])
    return content_columns


def _entity(attributes: Mapping[str, str], end: str) -> object:
    """Return what traceloop's decorators and callbacks recorded of a call: its request or response, as an object."""
    fields = fields_of(attributes.get(f"traceloop.entity.{end}", ""))
    return fields.get(f"{end}s", cast("object", fields)) or None


class _Entry(NamedTuple):
    """A message as indexed attributes list it."""

    message: Fields
    messages: list[Fields]
    """The messages that it is in an input: answers of tools stand by themselves."""
    is_whole: bool
    """Whether it is a message by itself, whatever stands beside it."""


def _seen_entry(fields: Fields) -> _Entry:
    item = flat_message(fields, "user")
    is_whole = not _is_thought(item) and SPLIT not in item and (bool(item["parts"]) or not item.get("finish_reason"))
    return _Entry(item, split_answers([item]) if is_whole else [], is_whole)


def _output_entry(fields: Fields) -> _Entry:
    return _Entry(flat_message(fields, "assistant"), [], is_whole=False)


def _seen(entries: Sequence[_Entry]) -> list[Fields]:
    """The messages of an input; none where one of its entries is no message by itself."""
    return [item for entry in entries for item in entry.messages] if all(entry.is_whole for entry in entries) else []


def _without_answer(seen: list[Fields]) -> tuple[list[Fields], list[Fields]]:
    """Split off the model's last message: Logfire lists a Responses API's answer with the rest."""
    turns = joined_turns(seen)
    return (turns[:-1], turns[-1:]) if turns and turns[-1]["role"] == "assistant" else (turns, [])


def _beside(attributes: Mapping[str, str], response: Fields) -> dict[str, str]:
    """Return the columns of a Responses API's response beside its messages."""
    from_response, offered = response_columns(response), request_tools(response)
    columns: dict[str, str] = {
        column: as_text(from_response[column])
        for column in ("response_id", "finish_reasons")
        if column in from_response
    }
    settings = parameters(fields_of(attributes.get("model_settings", "")))
    return {**columns, **settings, **({"tools": dump(offered)} if offered else {})}


def _are_arguments(output: Sequence[Fields], tools: str) -> bool:
    """Whether the words are a tool's arguments: Langtrace strings together whatever a stream brings."""
    parts = [as_fields(part) for item in output for part in as_list(item["parts"])]
    given = fields_of(as_text(parts[0].get("content"))) if len(parts) == 1 else {}
    offered = (
        as_fields(as_fields(as_fields(tool).get("parameters")).get("properties")) for tool in as_list(decoded(tools))
    )
    return bool(given) and any(given.keys() <= properties.keys() for properties in offered)


REQUESTED_CALLS: Final = "spanloop.requested_calls"
"""The event that ``canonical`` makes of spans below a call that each name a tool call which the model asked for."""


def _with_requested_calls(output: list[Fields], calls: Sequence[object]) -> list[Fields]:
    empty: Fields = {"role": "assistant", "parts": []}
    first_answer = output[0] if output else empty
    parts = as_list(first_answer["parts"])
    known_ids = {as_fields(part).get("id") for part in parts}
    missing_calls = [call for call in map(tool_call, calls) if as_fields(call).get("id") not in known_ids]
    return [{**first_answer, "parts": [*parts, *missing_calls]}, *output[1:]] if missing_calls else output


def _flat(entries: Sequence[_Entry], role: str) -> list[Fields]:
    flat_messages = [entry.message for entry in entries]
    if not flat_messages:
        return []
    turns = joined_turns(flat_messages) if any(SPLIT in item for item in flat_messages) else _with_reason(flat_messages)
    turns = [{key: item[key] for key in item if key != SPLIT} if SPLIT in item else item for item in turns]
    return [item for item in _with_thoughts(turns) if item["parts"] or role == "user"]


SPLIT: Final = "_split"
"""Marks a message of one of several calls that the model made at once: Netra makes a message of each."""


def _with_reason(listed: list[Fields]) -> list[Fields]:
    """Netra lists the finish reason behind the answer, as if it were another one."""
    *before, last = listed
    if not before or last["parts"] or "finish_reason" not in last or "finish_reason" in before[-1]:
        return listed
    return [*before[:-1], {**before[-1], "finish_reason": last["finish_reason"]}]


def _is_thought(item: Fields) -> bool:
    """Whether a listed message is what a model thought to itself."""
    return item["role"] in {"thinking", "reasoning"}


def _with_thoughts(listed: Sequence[Fields]) -> list[Fields]:
    """Move reasoning that is listed as a message by itself into the message that follows it."""
    whole: list[Fields] = []
    thoughts: list[object] = []
    beside: Fields = {}
    for item in listed:
        parts = as_list(item["parts"])
        if _is_thought(item):
            thoughts += [{"type": "reasoning", "content": as_fields(part).get("content", part)} for part in parts]
            beside |= item
        else:
            whole.append({**beside, **item, "parts": [*thoughts, *parts]} if thoughts or beside else item)
            thoughts, beside = [], {}
    return [*whole, {**beside, "role": "assistant", "parts": thoughts}] if thoughts else whole


def flat_message(fields: Fields, role: str) -> Fields:
    """One message out of the nested object that its numbered attributes make."""
    content = fields.get("content")
    if "parts" in fields or isinstance(fields.get("tool_calls"), str):
        # Respan writes tool calls as one JSON attribute, others the parts.
        whole = {key: decoded(text) for key in ("tool_calls", "parts") if isinstance(text := fields.get(key), str)}
        fields = {key: value for key, value in (fields | whole).items() if key != "parts" or as_list(value)}
    if fields.get("role") == "assistant" and fields.get("tool_call_id"):
        call_fields = as_fields(decoded(as_text(content)))
        if "name" in call_fields and "arguments" in call_fields:
            call = {"id": fields["tool_call_id"], **call_fields}
            return {**message({"role": "assistant", "tool_calls": [call]}, role), SPLIT: True}
    if content == '""':
        # OpenLLMetry's LangChain once wrote all content as JSON.
        fields = {**fields, "content": ""}
    elif isinstance(content, str) and content.lstrip()[:2] in {"[{", '["'}:
        parts = decoded_content(content, "content of an indexed message")
        if not (type(parts) is str or fields.get("role") == "tool"):
            fields = {**fields, "content": parts}
    return message(fields, role)


def _whole(attributes: Mapping[str, str], key: str, role: str) -> list[Fields]:
    value = decoded_messages(attributes.get(key, ""), key)
    request = as_fields(value)
    if not request or "role" in request:
        return messages(value, role)
    whole = request_messages(request) if role == "user" else response_messages(request)
    return whole or messages(request, role)


def _tool_events(span: RawSpan) -> dict[str, str]:
    """Return the columns in a tool span's events: ``gen_ai.tool.message`` is the call, ``gen_ai.choice`` its answer."""
    tool_columns: dict[str, str] = {}
    for name, values in span.events:
        payload = payload_of(values)
        if name == "gen_ai.tool.message" and "tool_arguments" not in span.columns:
            tool_columns["tool_arguments"] = as_text(payload.get("content"))
            tool_columns["tool_call_id"] = span.columns.get("tool_call_id") or as_text(payload.get("id"))
        elif name == "gen_ai.choice" and "tool_result" not in span.columns:
            answer = event_message("assistant", {"content": payload.get("message")})
            parts = [cast("Fields", part) for part in cast("list[object]", answer["parts"]) if isinstance(part, dict)]
            tool_columns["tool_result"] = "".join(
                as_text(part.get("content")) for part in parts if part.get("type") == "text"
            )
    return tool_columns


_PYDANTIC_AGENT: Final = ("all_messages_events", "pydantic_ai.all_messages")
"""Attributes of Pydantic AI's agent runs; before version 2 these have no operation, and the tokens of all calls."""

_ENTITY: Final = of_keys(("traceloop.entity.name",))
_COLUMNS: Final = sources(behind=ALTERNATIVES)
_WHOLE_MARKS: Final = ("gen_ai.prompt", "gen_ai.completion", *REQUEST_TYPES)
_has_events = pl.col("Events.Name").list.eval(pl.element().str.starts_with("gen_ai.")).list.any()
_is_marked = pl.any_horizontal(attr(key).is_not_null() for key in (*_FLAT_MARKS, *_WHOLE_MARKS))
_has_no_messages = attr(names.GEN_AI_OPERATION_NAME).is_null() & pl.any_horizontal(
    attr(key).is_not_null()
    for key in (TRACELOOP_KIND, names.GEN_AI_REQUEST_MODEL, names.GEN_AI_TOOL_NAME, *_PYDANTIC_AGENT)
)
_has_listed = attr(EVENTS).is_not_null() & attr(names.GEN_AI_REQUEST_MODEL).is_not_null()

LEGACY: Final = Dialect(
    name="legacy",
    matches=attr(names.GEN_AI_INPUT_MESSAGES).is_null()
    & (_is_marked | _has_events.fill_null(value=False) | _has_no_messages | _has_listed),
    columns={
        **_COLUMNS,
        "kind": KIND,
        "session_id": ("traceloop.association.properties.session_id",),
        "tool_name": pl.coalesce(
            of_keys(_COLUMNS["tool_name"]),
            pl.when(_is_tool_output).then(_TOOL_OUTPUT.str.extract(r'"tool_name":\s*"([^"]+)"')),
            pl.when(pl.col("kind") == SpanKind.TOOL.value).then(pl.coalesce(_ENTITY, "SpanName")),
        ),
        "agent_name": pl.coalesce(
            of_keys(_COLUMNS["agent_name"]), pl.when(pl.col("kind") == SpanKind.AGENT.value).then(_ENTITY)
        ),
    },
    read=read,
    reads=(pl.col("kind") == SpanKind.LLM.value)
    | ((pl.col("kind") == SpanKind.TOOL.value) & _has_events.fill_null(value=False)),
    lists={
        "seen": IndexedList(PROMPTS, _seen_entry),
        "said": IndexedList(COMPLETIONS, _output_entry),
        "functions": FUNCTIONS,
    },
    calls=(
        {names.GEN_AI_REQUEST_MODEL: ".", names.GEN_AI_OPERATION_NAME: ("",)},
        *({key: ("chat", "completion")} for key in REQUEST_TYPES),
        *({key: ""} for key in _FLAT_MARKS),
    ),
)
