"""The legacy forms all at once: what ``legacy.read`` finds span by span, as expressions where that is possible.

Simple are spans whose messages, if any, stand in numbered attributes; events, messages as one text and what Pydantic AI
wrote are read one by one. Invariant: of a simple span the columns say exactly what ``legacy.read`` says.
"""

from collections.abc import Container, Mapping, Sequence
from typing import Final

import polars as pl

from spanloop.semconv import attributes as names

from ..chat_forms import Fields, as_list, split_answers
from ..messages import dump
from ..spans import SpanKind
from .base import SAID, SEEN, attr, column_of
from .legacy import (
    ALTERNATIVES,
    ANSWERED,
    COMPLETIONS,
    EVENTS,
    KIND_OF_OPERATION,
    KIND_OF_REQUEST,
    KIND_OF_TRACELOOP,
    PROMPTS,
    REQUEST_TYPES,
    RESPAN,
    SPLIT,
    TRACELOOP_KIND,
    flat_message,
    is_thought,
    read,
    tool_definition,
)
from .numbered import Entry, Numbered, Usual
from .otel_genai import SOURCES
from .rows import RowDialect, Spread, as_text

_SESSION: Final = "traceloop.association.properties.session_id"
_ENTITY: Final = "traceloop.entity.name"
_FUNCTIONS: Final = ("llm.request.functions", "gen_ai.request.functions")
_PYDANTIC_REQUEST: Final = "model_request_parameters"
_RESPAN: Final = (RESPAN, _FUNCTIONS[0])
"""What has JSON in it where others have numbers."""
_AGENTS: Final = ("agent_name", names.GEN_AI_AGENT_NAME)


_NOTHING: Final = pl.lit(None, dtype=pl.String)


def _seen(fields: Fields) -> Entry | None:
    item = flat_message(fields, "user")
    return (
        None if is_thought(item) or SPLIT in item else Entry(",".join(dump(found) for found in split_answers([item])))
    )


def _said(fields: Fields) -> Entry | None:
    item = flat_message(fields, "assistant")
    reason = as_text(item["finish_reason"]) if item.get("finish_reason") else ""
    if is_thought(item) or SPLIT in item or (reason and not item["parts"]):
        return None
    return Entry(dump(item), reason) if as_list(item["parts"]) else Entry("")


_is_clear: Final = pl.col("content").str.contains(r'^[^\s\["]') & ~pl.col("content").str.contains(r"\ud", literal=True)
"""Text that begins otherwise may be a list of parts, or nothing; what looks like a lone surrogate is looked at."""

_TEXTS: Final = pl.concat_list(pl.struct(pl.lit("text").alias("type"), "content")).alias("parts")
_ANSWERS: Final = pl.concat_list(
    pl.struct(
        pl.lit("tool_call_response").alias("type"),
        pl.col("tool_call_id").alias("id"),
        pl.col("content").alias("response"),
    )
).alias("parts")

_role: Final = pl.when(~pl.col("content").str.contains("REDACTED", literal=True)).then("role")

_USUAL: Final = (
    Usual(
        ("role", "content"),
        pl.col("role").is_in(["system", "user", "assistant"]) & _is_clear,
        pl.struct("role", _TEXTS),
        pl.lit(""),
        (_role, pl.col("content"), pl.lit("")),
    ),
    Usual(
        ("role", "content", "tool_call_id"),
        (pl.col("role") == "tool") & (pl.col("tool_call_id") != "") & _is_clear,
        pl.struct("role", _ANSWERS),
        pl.lit(""),
        (_role, pl.col("content"), pl.col("tool_call_id")),
    ),
    Usual(
        ("role", "content", "finish_reason"),
        (pl.col("role") == "assistant") & (pl.col("finish_reason") != "") & _is_clear,
        pl.struct("role", _TEXTS, "finish_reason"),
        pl.col("finish_reason"),
        (_role, pl.col("content"), pl.lit("")),
    ),
)
"""Messages that are a role and text, and answers to a tool call by its id."""


def _tool(fields: Fields) -> Entry:
    return Entry(dump(tool_definition(fields)))


def _first(columns: Container[str], wanted: Sequence[str]) -> pl.Expr:
    """The first of the attributes that is there and not empty; null without one."""
    told = [pl.when(attr(key) != "").then(attr(key)) for key in wanted if column_of(key) in columns]
    return pl.coalesce(told) if told else _NOTHING


def _has(columns: Container[str], wanted: Sequence[str]) -> pl.Expr:
    told = [attr(key).is_not_null() for key in wanted if column_of(key) in columns]
    return pl.any_horizontal(told) if told else pl.lit(value=False)


def _is_simple(columns: Container[str]) -> pl.Expr:
    return _first(columns, (EVENTS, _PYDANTIC_REQUEST, *_RESPAN, "gen_ai.prompt", "gen_ai.completion")).is_null()


def _kind(columns: Container[str]) -> pl.Expr:
    """As ``legacy.kind_of`` of a span without events."""
    operation = _first(columns, (names.GEN_AI_OPERATION_NAME,))
    told = (
        (operation, KIND_OF_OPERATION),
        (_first(columns, (TRACELOOP_KIND,)), KIND_OF_TRACELOOP),
        (_first(columns, REQUEST_TYPES), KIND_OF_REQUEST),
    )
    is_call = (
        _first(columns, (names.GEN_AI_REQUEST_MODEL,)).is_not_null() & operation.is_null() & _has(columns, ANSWERED)
    )
    return pl.coalesce(
        *(_named(text, kinds) for text, kinds in told),
        pl.when(_has(columns, _FLAT_MARKS)).then(pl.lit(SpanKind.LLM.value)),
        pl.when(_first(columns, (names.GEN_AI_TOOL_NAME,)).is_not_null()).then(pl.lit(SpanKind.TOOL.value)),
        pl.when(_first(columns, _AGENTS).is_not_null()).then(pl.lit(SpanKind.AGENT.value)),
        pl.when(is_call).then(pl.lit(SpanKind.LLM.value)).otherwise(pl.lit(SpanKind.OTHER.value)),
    )


def _named(text: pl.Expr, kinds: Mapping[str, SpanKind]) -> pl.Expr:
    return text.replace_strict({name: kind.value for name, kind in kinds.items()}, default=None, return_dtype=pl.String)


def _is_call(columns: Container[str]) -> pl.Expr:
    return _kind(columns) == SpanKind.LLM.value


def _columns(columns: Container[str]) -> Mapping[str, pl.Expr]:
    told = {column: _first(columns, (key, *ALTERNATIVES.get(column, ()))) for column, key in SOURCES.items()}
    told |= {column: _first(columns, wanted) for column, wanted in ALTERNATIVES.items() if column not in SOURCES}
    told |= {"kind": _kind(columns), "session_id": _first(columns, (_SESSION,))}
    entity = _first(columns, (_ENTITY,))
    is_tool, is_agent = (told["kind"] == other.value for other in (SpanKind.TOOL, SpanKind.AGENT))
    told["tool_name"] = pl.coalesce(told["tool_name"], pl.when(is_tool).then(pl.coalesce(entity, "SpanName")))
    told["agent_name"] = pl.coalesce(told["agent_name"], pl.when(is_agent).then(entity))
    said = _listed(columns, "said")
    more = {
        "input_messages": _listed(columns, "seen"),
        "tools": _listed(columns, "tools"),
        "output_messages": None if said is None else pl.when(said != "[]").then(said),
        "finish_reasons": _listed(columns, "said", ":note"),
        SEEN: _numbers(told["input_messages"], columns, "seen"),
        SAID: _numbers(told["output_messages"], columns, "said"),
    }
    return told | {name: _over(told.get(name, _NOTHING), listed) for name, listed in more.items() if listed is not None}


def _numbers(told: pl.Expr, columns: Container[str], name: str) -> pl.Expr | None:
    """The numbers of the messages in the list, where the list is what counts."""
    numbers = _listed(columns, name, ":numbers")
    return numbers if numbers is None or told is _NOTHING else pl.when(told.is_null()).then(numbers)


def _over(told: pl.Expr, listed: pl.Expr) -> pl.Expr:
    return listed if told is _NOTHING else pl.coalesce(told, listed)


def _listed(columns: Container[str], name: str, what: str = "") -> pl.Expr | None:
    """The list out of the attributes of the newer name, else of the older; None where there is neither."""
    found = [one for one in (f"list:{name}", f"list:{name} too") if one in columns]
    if len(found) > 1:
        return pl.when(pl.col(found[0]) != "").then(found[0] + what).otherwise(found[1] + what)
    return pl.col(found[0] + what) if found else None


_PYDANTIC_AGENT: Final = ("all_messages_events", "pydantic_ai.all_messages")
"""What Pydantic AI's agent runs carry; before version 2 they have no operation, and the tokens of all their calls."""

_FLAT_MARKS: Final = tuple(f"{prefix}.0.{end}" for prefix in (*PROMPTS, *COMPLETIONS) for end in ("role", "content"))
_WHOLE_MARKS: Final = ("gen_ai.prompt", "gen_ai.completion", *REQUEST_TYPES)
_has_events = pl.col("Events.Name").list.eval(pl.element().str.starts_with("gen_ai.")).list.any()
_is_marked = pl.any_horizontal(attr(key).is_not_null() for key in (*_FLAT_MARKS, *_WHOLE_MARKS))
_is_bare = attr(names.GEN_AI_OPERATION_NAME).is_null() & pl.any_horizontal(
    attr(key).is_not_null()
    for key in (TRACELOOP_KIND, names.GEN_AI_REQUEST_MODEL, names.GEN_AI_TOOL_NAME, *_PYDANTIC_AGENT)
)
_has_listed = attr(EVENTS).is_not_null() & attr(names.GEN_AI_REQUEST_MODEL).is_not_null()

LEGACY: Final = RowDialect(
    name="legacy",
    attributes=frozenset(
        {
            *_FLAT_MARKS,
            *_WHOLE_MARKS,
            EVENTS,
            TRACELOOP_KIND,
            *_PYDANTIC_AGENT,
            names.GEN_AI_OPERATION_NAME,
            names.GEN_AI_REQUEST_MODEL,
            names.GEN_AI_TOOL_NAME,
            names.GEN_AI_INPUT_MESSAGES,
        }
    ),
    matches=attr(names.GEN_AI_INPUT_MESSAGES).is_null()
    & (_is_marked | _has_events.fill_null(value=False) | _is_bare | _has_listed),
    read=read,
    spread=Spread(
        lists={
            "list:seen": Numbered(PROMPTS[0], _seen, usual=_USUAL),
            "list:seen too": Numbered(PROMPTS[1], _seen, usual=_USUAL),
            "list:said": Numbered(COMPLETIONS[0], _said, usual=_USUAL),
            "list:said too": Numbered(COMPLETIONS[1], _said, usual=_USUAL),
            "list:tools": Numbered(_FUNCTIONS[0], _tool),
            "list:tools too": Numbered(_FUNCTIONS[1], _tool),
        },
        has_lists=_is_call,
        is_simple=_is_simple,
        columns=_columns,
        attributes=frozenset(
            {
                *SOURCES.values(),
                *(key for wanted in ALTERNATIVES.values() for key in wanted),
                *ANSWERED,
                *_AGENTS,
                _PYDANTIC_REQUEST,
                *_RESPAN,
                _SESSION,
                _ENTITY,
            }
        ),
    ),
)
