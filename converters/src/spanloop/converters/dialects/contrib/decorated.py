"""Decorators that write down a function's arguments, each or all of them, and what it returned.

TruLens, HoneyHive, PromptLayer, Agenta, Basalt and Orq. The function around a client is the model call: its arguments
are the request, what it returned is the response, mostly as the repr of the client's objects. What it was given counts
only where messages are in it: a function that makes them up itself does not say what the model saw.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

import polars as pl

from spanloop.messages.json_values import Fields, as_fields, as_list
from spanloop.semconv import attributes as names

from ...reading.python_reprs import value_of_repr
from ...spans import SpanKind
from ..base import Calls, ColumnValue, Dialect, RawSpan, attr
from ..otel_genai import sources
from ..provider_payloads import request_columns, response_columns
from ..rows import as_text, decoded, fields_of

_LLM, _TOOL, _AGENT, _OTHER = SpanKind.LLM, SpanKind.TOOL, SpanKind.AGENT, SpanKind.OTHER


@dataclass(frozen=True)
class Decorator:
    """The attributes in which one library records a function.

    Attributes:
        name: Of the dialect.
        kind: Attribute that tells what the function stands for.
        kinds: Its values in lower case; any other is something else.
        given: Its arguments by name.
        returned: Attribute with what it returned.
        columns: Further columns, beside OpenTelemetry's own attributes; the first attribute that is there counts.
        matches: As of the dialect.
        kind_of: What the function stands for, where its kind alone does not tell.
        calls: As of the dialect; the model calls of ``kinds`` where it is empty.
    """

    name: str
    kind: str
    kinds: Mapping[str, SpanKind]
    given: Callable[[RawSpan], Fields]
    returned: str
    columns: Mapping[str, tuple[str, ...]]
    matches: pl.Expr
    kind_of: Callable[[RawSpan, SpanKind], SpanKind] = lambda _, kind: kind
    calls: Calls = ()


def read(library: Decorator, span: RawSpan) -> dict[str, ColumnValue]:
    """The canonical columns of one function."""
    kind = library.kind_of(span, library.kinds.get(span.attributes.get(library.kind, "").lower(), _OTHER))
    columns = {**span.columns, "kind": str(kind)}
    given, returned = library.given(span), _value(span.attributes.get(library.returned, ""))
    if kind is _LLM:
        return {**columns, **_call(given, returned, columns)}
    if kind is _TOOL:
        columns["tool_name"] = _called(columns.get("tool_name") or span.name)
        columns["tool_arguments"] = columns.get("tool_arguments") or (as_text(given) if given else "")
        columns["tool_result"] = columns.get("tool_result") or as_text(returned)
    elif kind is _AGENT:
        columns["agent_name"] = _called(columns.get("agent_name") or span.name)
    return {**columns}


def _call(given: Fields, returned: object, columns: Mapping[str, str]) -> dict[str, ColumnValue]:
    requested, answered = request_columns(_request(given)), response_columns(returned)
    call_columns = {**requested, **columns, **answered}
    if not call_columns.get("finish_reasons"):
        # A function that returns the words alone says nothing about a stream.
        call_columns["is_streaming"] = ""
    return call_columns


_MESSAGES: Final = ("messages", "input", "contents")


def _request(given: Fields) -> Fields:
    """The arguments, or the one among them (``**kwargs``, mostly), that have messages; none where there are none."""
    nothing: Fields = {}
    inner = (as_fields(value) for value in given.values())
    return next((fields for fields in (given, *inner) if _has_messages(fields)), nothing)


def _has_messages(given: Fields) -> bool:
    return any(as_fields(item) for key in _MESSAGES for item in as_list(given.get(key)))


def _value(text: str) -> object:
    """Return a function's result: JSON, a repr of models or of a literal, or words; None for a repr without content."""
    parsed = decoded(text.removeprefix(_AGENTA_JSON)) if text else None
    if not isinstance(parsed, str):
        items = as_list(parsed)
        # The chunks of a stream that the function itself handed on.
        return None if items and all(isinstance(item, str) for item in items) else parsed
    value = value_of_repr(parsed)
    return parsed if value is None and not _OPAQUE.match(parsed) else value


_AGENTA_JSON: Final = "@ag.type=json:"

_OPAQUE: Final = re.compile(r"<[\w.]+ (?:object )?at 0x|<(?:async_)?generator |<coroutine |[A-Z]\w*\(\w+=")
"""Beginnings of reprs that are no words of a model: of objects, and of models with more in them than can be read."""


def _called(name: str) -> str:
    """The function's own name, of one that is told with its module and class."""
    return name.rpartition(".")[2] or name


def _with_prefix(prefix: str) -> Callable[[RawSpan], Fields]:
    def given(span: RawSpan) -> Fields:
        items = span.attributes.items()
        return {
            key.removeprefix(prefix): decoded(value.removeprefix(_AGENTA_JSON))
            for key, value in items
            if key.startswith(prefix)
        }

    return given


def _whole(key: str) -> Callable[[RawSpan], Fields]:
    """All arguments in one attribute, as JSON or a repr."""

    def given(span: RawSpan) -> Fields:
        text = span.attributes.get(key, "")
        return fields_of(text) or as_fields(value_of_repr(text))

    return given


_TRULENS_KIND: Final = "ai.observability.span_type"
_TRULENS_KINDS: Final = {"generation": _LLM, "tool": _TOOL, "mcp": _TOOL, "agent": _AGENT}

TRULENS: Final = Decorator(
    name="trulens",
    kind=_TRULENS_KIND,
    kinds=_TRULENS_KINDS,
    given=_with_prefix("ai.observability.call.kwargs."),
    returned="ai.observability.call.return",
    columns={
        "conversation_id": ("ai.observability.conversation_id",),
        "response_model": ("ai.observability.cost.model",),
        "input_tokens": ("ai.observability.cost.num_prompt_tokens",),
        "output_tokens": ("ai.observability.cost.num_completion_tokens",),
        "tool_name": ("ai.observability.mcp.tool_name",),
    },
    # It marks spans of others, too, and writes the costs of several calls on the span around them.
    matches=attr(_TRULENS_KIND).str.to_lowercase().is_in(list(_TRULENS_KINDS)),
)

_HONEYHIVE_KIND: Final = "honeyhive_event_type"
_HONEYHIVE_GIVEN: Final = "honeyhive_inputs."
_honeyhive_given: Final = _with_prefix(_HONEYHIVE_GIVEN)


def _honeyhive_kind(span: RawSpan, kind: SpanKind) -> SpanKind:
    """Return what a function is; around an instrumented client, without messages of its own, it is no second call."""
    given = _honeyhive_given(span)
    # A span that only tells of a failure has nothing but the error.
    is_twin = "honeyhive_error" in span.attributes and not given
    return _OTHER if is_twin or (kind is _LLM and not _request(given)) else kind


HONEYHIVE: Final = Decorator(
    name="honeyhive",
    kind=_HONEYHIVE_KIND,
    kinds={"model": _LLM, "tool": _TOOL},
    kind_of=_honeyhive_kind,
    given=_honeyhive_given,
    returned="honeyhive_outputs.result",
    columns={"session_id": ("honeyhive.session_id",), "tool_name": ("honeyhive_event_name",)},
    matches=attr(_HONEYHIVE_KIND).is_not_null(),
)

_PROMPTLAYER_GIVEN: Final = "function_input"
_PROMPTLAYER_NAME: Final = "function_name"


def _promptlayer_given(span: RawSpan) -> Fields:
    return as_fields(_whole(_PROMPTLAYER_GIVEN)(span).get("kwargs"))


def _promptlayer_kind(span: RawSpan, kind: SpanKind) -> SpanKind:
    return _LLM if "provider" in span.attributes and _request(_promptlayer_given(span)) else kind


PROMPTLAYER: Final = Decorator(
    name="promptlayer",
    kind="node_type",
    kinds={"code_execution": _TOOL},
    kind_of=_promptlayer_kind,
    given=_promptlayer_given,
    returned="function_output",
    columns={"tool_name": ("tool.name", _PROMPTLAYER_NAME)},
    matches=attr(_PROMPTLAYER_NAME).is_not_null() & attr(_PROMPTLAYER_GIVEN).is_not_null(),
    calls=({"provider": "", _PROMPTLAYER_GIVEN: ""},),
)

_AGENTA_KIND: Final = "ag.type.node"

AGENTA: Final = Decorator(
    name="agenta",
    kind=_AGENTA_KIND,
    kinds={"chat": _LLM, "completion": _LLM, "llm": _LLM, "tool": _TOOL, "agent": _AGENT},
    given=_with_prefix("ag.data.inputs."),
    returned="ag.data.outputs.__default__",
    columns={"session_id": ("ag.session.id",)},
    matches=attr(_AGENTA_KIND).is_not_null(),
)

_BASALT_KIND: Final = "basalt.span.kind"

BASALT: Final = Decorator(
    name="basalt",
    kind=_BASALT_KIND,
    kinds={"generation": _LLM, "tool": _TOOL},
    given=_whole("basalt.span.input"),
    returned="basalt.span.output",
    columns={},
    matches=attr(_BASALT_KIND).is_not_null(),
)

_ORQ_KIND: Final = "type"
_ORQ_KINDS: Final = {"llm": _LLM, "tool": _TOOL, "agent": _AGENT}

ORQ: Final = Decorator(
    name="orq",
    kind=_ORQ_KIND,
    kinds=_ORQ_KINDS,
    given=_whole("input"),
    returned="output",
    columns={},
    matches=attr(_ORQ_KIND).is_in(list(_ORQ_KINDS)) & attr("status").is_not_null() & attr("input").is_not_null(),
    calls=({_ORQ_KIND: ("llm",), "status": "", "input": ""},),
)

DECORATED: Final = tuple(
    Dialect(
        name=library.name,
        # A call in OpenTelemetry's form keeps its own reader, whatever marks a library put on it.
        matches=library.matches
        & attr(names.GEN_AI_OPERATION_NAME).is_null()
        & attr(names.GEN_AI_INPUT_MESSAGES).is_null(),
        columns=sources(before=library.columns),
        read=partial(read, library),
        calls=library.calls
        or ({library.kind: [kind_text for kind_text, kind in library.kinds.items() if kind is _LLM]},),
    )
    for library in (TRULENS, HONEYHIVE, PROMPTLAYER, AGENTA, BASALT, ORQ)
)
