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
from .base import attr
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
    TRACELOOP_KIND,
    flat_message,
    is_thought,
    read,
    tool_definition,
)
from .numbered import Entry, Numbered
from .otel_genai import SOURCES
from .rows import RowDialect, Spread, as_text

_SESSION: Final = "traceloop.association.properties.session_id"
_ENTITY: Final = "traceloop.entity.name"
_FUNCTIONS: Final = ("llm.request.functions", "gen_ai.request.functions")
_PYDANTIC_REQUEST: Final = "model_request_parameters"
_AGENTS: Final = ("agent_name", names.GEN_AI_AGENT_NAME)


def _seen(fields: Fields) -> Entry | None:
    item = flat_message(fields, "user")
    return None if is_thought(item) else Entry(",".join(dump(found) for found in split_answers([item])))


def _said(fields: Fields) -> Entry | None:
    item = flat_message(fields, "assistant")
    if is_thought(item):
        return None
    reason = as_text(item["finish_reason"]) if item.get("finish_reason") else ""
    return Entry(dump(item), reason) if as_list(item["parts"]) else Entry("")


def _tool(fields: Fields) -> Entry:
    return Entry(dump(tool_definition(fields)))


def _first(keys: Container[str], wanted: Sequence[str]) -> pl.Expr:
    """The first of the attributes that is there and not empty; null without one."""
    told = [pl.when(attr(key) != "").then(attr(key)) for key in wanted if key in keys]
    return pl.coalesce(told) if told else pl.lit(None, dtype=pl.String)


def _has(keys: Container[str], wanted: Sequence[str]) -> pl.Expr:
    told = [attr(key).is_not_null() for key in wanted if key in keys]
    return pl.any_horizontal(told) if told else pl.lit(value=False)


def _is_simple(keys: Container[str]) -> pl.Expr:
    return _first(keys, (EVENTS, _PYDANTIC_REQUEST, "gen_ai.prompt", "gen_ai.completion")).is_null()


def _kind(keys: Container[str]) -> pl.Expr:
    """As ``legacy.kind_of`` of a span without events."""
    operation = _first(keys, (names.GEN_AI_OPERATION_NAME,))
    told = (
        (operation, KIND_OF_OPERATION),
        (_first(keys, (TRACELOOP_KIND,)), KIND_OF_TRACELOOP),
        (_first(keys, REQUEST_TYPES), KIND_OF_REQUEST),
    )
    is_call = _first(keys, (names.GEN_AI_REQUEST_MODEL,)).is_not_null() & operation.is_null() & _has(keys, ANSWERED)
    return pl.coalesce(
        *(_named(text, kinds) for text, kinds in told),
        pl.when(_has(keys, _FLAT_MARKS)).then(pl.lit(SpanKind.LLM.value)),
        pl.when(_first(keys, (names.GEN_AI_TOOL_NAME,)).is_not_null()).then(pl.lit(SpanKind.TOOL.value)),
        pl.when(_first(keys, _AGENTS).is_not_null()).then(pl.lit(SpanKind.AGENT.value)),
        pl.when(is_call).then(pl.lit(SpanKind.LLM.value)).otherwise(pl.lit(SpanKind.OTHER.value)),
    )


def _named(text: pl.Expr, kinds: Mapping[str, SpanKind]) -> pl.Expr:
    return text.replace_strict({name: kind.value for name, kind in kinds.items()}, default=None, return_dtype=pl.String)


def _columns(keys: Container[str]) -> Mapping[str, pl.Expr]:
    told = {column: _first(keys, (key, *ALTERNATIVES.get(column, ()))) for column, key in SOURCES.items()}
    told |= {column: _first(keys, wanted) for column, wanted in ALTERNATIVES.items() if column not in SOURCES}
    kind = _kind(keys)
    entity = _first(keys, (_ENTITY,))
    is_call, is_tool, is_agent = (kind == other.value for other in (SpanKind.LLM, SpanKind.TOOL, SpanKind.AGENT))
    reason = pl.when(pl.col("said").is_not_null()).then("said:note").otherwise("said too:note")
    said = pl.coalesce("said", "said too")
    of_call = {
        "finish_reasons": reason,
        "tools": pl.coalesce("tools", "tools too"),
        "input_messages": pl.coalesce("seen", "seen too"),
        "output_messages": pl.when(said != "[]").then(said),
    }
    of_others = {
        "tool_name": pl.when(is_tool).then(pl.coalesce(entity, "SpanName")),
        "agent_name": pl.when(is_agent).then(entity),
    }
    more = {column: pl.when(is_call).then(value) for column, value in of_call.items()} | of_others
    return {
        **told,
        **{column: pl.coalesce(told[column], value) for column, value in more.items()},
        "kind": kind,
        "session_id": _first(keys, (_SESSION,)),
    }


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
            "seen": Numbered(PROMPTS[0], _seen),
            "seen too": Numbered(PROMPTS[1], _seen),
            "said": Numbered(COMPLETIONS[0], _said),
            "said too": Numbered(COMPLETIONS[1], _said),
            "tools": Numbered(_FUNCTIONS[0], _tool),
            "tools too": Numbered(_FUNCTIONS[1], _tool),
        },
        is_simple=_is_simple,
        columns=_columns,
        attributes=frozenset(
            {
                *SOURCES.values(),
                *(key for wanted in ALTERNATIVES.values() for key in wanted),
                *ANSWERED,
                *_AGENTS,
                _PYDANTIC_REQUEST,
                _SESSION,
                _ENTITY,
            }
        ),
    ),
)
