"""otel_traces rows → spans: duplicates collapse, attributes become columns, each dialect spells them out.

Invariant: accepted + rejected = rows that came in, in any order of rows. A span that was delivered twice counts
once, as of its first arrival, so that a repeated delivery changes no revision.
"""

from functools import lru_cache
from typing import Any, Final, NamedTuple, cast

import polars as pl

from spanloop.semconv import attributes as names
from spanloop.semconv.enums import UntrainableReason

from . import frames
from .canonical import MARK, canonical_columns
from .finish_reasons import canonical_finish_reason
from .messages import (
    MalformedMessagesError,
    Message,
    MessageReader,
    chain,
    dump,
    parse_json,
    parse_system_instructions,
)
from .span_events import with_logs
from .spans import ExceptionInfo, Problem, Rejected, Span, SpanKind
from .tool_envelopes import open_answer, open_arguments

_SAMPLING: Final = ("temperature", "top_p", "max_tokens", "seed")
_LATEST_NS: Final = 2**63 - 1
_NO_EXCEPTION: Final = ExceptionInfo("", "")
_MOST_TOKENS: Final = 2**32 - 1


class Normalised(NamedTuple):
    """Spans by (start, trace id, span id), and the rows that are none."""

    spans: list[Span]
    rejected: list[Rejected]


def normalise(frame: pl.DataFrame, logs: pl.DataFrame | None = None) -> Normalised:
    """Read every row of ``frame`` by the first dialect that knows it.

    Args:
        frame: The columns of ``frames.SPANS``.
        logs: The columns of ``frames.LOGS``; records that name a span count as its events.
    """
    whole = frames.conform(frame, frames.SPANS)
    sound = (pl.col("TraceId").fill_null("") != "") & (pl.col("SpanId").fill_null("") != "")
    timed = pl.col("Timestamp").is_not_null() & pl.col("IngestedAt").is_not_null()
    rejected = [
        Rejected(trace_id or "", span_id or "", "malformed_span", "expected a trace id, a span id and times")
        for trace_id, span_id in whole.filter(~(sound & timed)).select("TraceId", "SpanId").iter_rows()
    ]
    unique, duplicates = _collapse(whole.filter(sound & timed))
    unique = unique if logs is None else with_logs(unique, logs)
    rejected += [
        Rejected(trace_id, span_id, "duplicate_span", "delivered more than once; the first delivery counts")
        for trace_id, span_id in duplicates.iter_rows()
    ]
    canonical = canonical_columns(unique)
    is_foreign = pl.col(MARK).is_not_null()
    foreign = canonical.filter(is_foreign).select("TraceId", "SpanId", "ScopeName", MARK)
    rejected += [
        Rejected(
            trace_id,
            span_id,
            "unsupported_dialect",
            f"no dialect reads the model call of scope {scope!r}, told by attribute {mark!r}: see docs/dialects.md",
        )
        for trace_id, span_id, scope, mark in foreign.iter_rows()
    ]
    return Normalised(_read(canonical.filter(~is_foreign)), rejected)


def _collapse(frame: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The first delivery of each span, and the keys of the others."""
    keys = ["TraceId", "SpanId"]
    if frame.select(pl.struct(keys).n_unique()).item() == frame.height:
        return frame.sort("Timestamp", *keys), frame.clear().select(keys)
    content = pl.concat_str(
        pl.col("Duration").cast(pl.String).fill_null(""),
        pl.col("StatusCode").fill_null(""),
        pl.col("SpanAttributes")
        .list.eval(pl.element().struct.field("key") + "=" + pl.element().struct.field("value"))
        .list.sort()
        .list.join("\n")
        .fill_null(""),
    )
    ordered = frame.with_columns(content.alias("_content")).sort("IngestedAt", "Timestamp", "_content", *keys)
    is_first = pl.int_range(pl.len()).over(keys) == 0
    marked = ordered.drop("_content").with_columns(is_first.alias("_is_first"))
    first = marked.filter(pl.col("_is_first")).drop("_is_first").sort("Timestamp", *keys)
    return first, marked.filter(~pl.col("_is_first")).select(keys)


def _read(frame: pl.DataFrame) -> list[Span]:
    timed = frame.with_columns(
        pl.col(pl.String).fill_null(""),
        pl.col("Timestamp", "IngestedAt").cast(pl.Int64),
        pl.col("Duration", "DroppedAttributesCount").fill_null(0),
    )
    reader = MessageReader()
    return [_span(row, reader) for row in timed.iter_rows(named=True)]


class _Content(NamedTuple):
    input: tuple[Message, ...]
    output: tuple[Message, ...]
    tools: str
    problem: Problem | None


def _span(row: dict[str, Any], reader: MessageReader) -> Span:
    text = cast("dict[str, str]", row)
    kind = SpanKind(text["kind"] or SpanKind.OTHER)
    is_error = text["StatusCode"].lower() in {"error", "status_code_error"}
    dropped = int(row["DroppedAttributesCount"])
    content = _content(text, reader, dropped) if kind is SpanKind.LLM else _NO_CONTENT
    answer = open_answer(text["tool_result"])
    reason = canonical_finish_reason(text["finish_reasons"]) or next(
        (canonical_finish_reason(message.finish_reason) for message in content.output), ""
    )
    return Span(
        trace_id=text["TraceId"],
        span_id=text["SpanId"],
        parent_span_id=text["ParentSpanId"],
        name=text["SpanName"],
        kind=kind,
        service_name=text["ServiceName"],
        scope=text["ScopeName"],
        start_ns=row["Timestamp"],
        duration_ns=_duration(row["Timestamp"], row["Duration"]),
        ingested_us=row["IngestedAt"],
        is_error=is_error,
        status_message=text["StatusMessage"],
        error_type=text["error_type"] or ("tool_error" if answer.has_failed else ""),
        exception=_exception(row["event_names"], row["event_attributes"]),
        episode_key=text["episode_key"],
        task_id=text["task_id"],
        session_id=text["session_id"],
        conversation_id=text["conversation_id"],
        agent_name=text["agent_name"],
        request_model=text["request_model"],
        response_model=text["response_model"],
        response_id=text["response_id"],
        finish_reason=reason,
        is_streaming=text["is_streaming"].lower() == "true",
        sampling=tuple((name, text[name]) for name in _SAMPLING if text[name]),
        input_tokens=_count(text["input_tokens"]),
        output_tokens=_count(text["output_tokens"]),
        tools=content.tools,
        input=content.input,
        output=content.output,
        input_chain=chain(content.input),
        problem=content.problem,
        tool_name=text["tool_name"],
        tool_call_id=text["tool_call_id"] or answer.tool_call_id,
        tool_arguments=open_arguments(text["tool_arguments"]),
        tool_result=answer.content,
    )


_NO_CONTENT: Final = _Content((), (), "[]", None)


def _content(text: dict[str, str], reader: MessageReader, dropped_attributes: int) -> _Content:
    where = f"span {text['SpanId']}"
    attribute = names.GEN_AI_INPUT_MESSAGES
    try:
        seen = reader.read(text["input_messages"]) if text["input_messages"] else ()
        if text["system_instructions"] and not any(message.role == "system" for message in seen):
            seen = (parse_system_instructions(text["system_instructions"]), *seen)
        attribute = names.GEN_AI_OUTPUT_MESSAGES
        said = reader.read(text["output_messages"]) if text["output_messages"] else ()
        attribute = names.GEN_AI_TOOL_DEFINITIONS
        tools = _tools(text["tools"])
    except (MalformedMessagesError, RecursionError) as error:
        problem = Problem(UntrainableReason.MALFORMED_MESSAGES, f"{where}, attribute {attribute}: {error}")
        return _Content((), (), "[]", problem)
    return _Content(seen, said, tools, _problem(where, seen, said, dropped_attributes))


def _problem(
    where: str, seen: tuple[Message, ...], said: tuple[Message, ...], dropped_attributes: int
) -> Problem | None:
    for attribute, messages in ((names.GEN_AI_INPUT_MESSAGES, seen), (names.GEN_AI_OUTPUT_MESSAGES, said)):
        if any(message.is_redacted for message in messages):
            return Problem(UntrainableReason.REDACTED_CONTENT, f"{where}, attribute {attribute}: redacted")
    if dropped_attributes:
        return Problem(
            UntrainableReason.DROPPED_ATTRIBUTES,
            f"{where}: {dropped_attributes} attributes dropped by the SDK's limit (expected 0)",
        )
    for attribute, messages in ((names.GEN_AI_INPUT_MESSAGES, seen), (names.GEN_AI_OUTPUT_MESSAGES, said)):
        if not messages:
            return Problem(UntrainableReason.MISSING_CONTENT, f"{where}, attribute {attribute}: absent")
    return None


@lru_cache(maxsize=256)
def _tools(text: str) -> str:
    """Tool definitions as ``[{"name", "description", "parameters"}]``.

    Raises:
        MalformedMessagesError: When the text is not a JSON list of objects.
    """
    if not text:
        return "[]"
    found = parse_json(text)
    if not isinstance(found, list):
        raise MalformedMessagesError(f"expected a list of tools, got {type(found).__name__}")
    return dump([_tool(item) for item in cast("list[object]", found)])


def _tool(item: object) -> dict[str, object]:
    if not isinstance(item, dict):
        raise MalformedMessagesError(f"expected a tool object, got {type(item).__name__}")
    fields = cast("dict[str, object]", item)
    inner = fields.get("function")
    source = cast("dict[str, object]", inner) if isinstance(inner, dict) else fields
    return {key: source[key] for key in ("name", "description", "parameters") if key in source}


def _exception(event_names: object, event_attributes: object) -> ExceptionInfo:
    if not isinstance(event_names, list) or not isinstance(event_attributes, list):
        return _NO_EXCEPTION
    events = zip(
        cast("list[str]", event_names), cast("list[list[dict[str, str]] | None]", event_attributes), strict=False
    )
    found = _NO_EXCEPTION
    for name, items in events:
        if name == names.EXCEPTION_EVENT_NAME:
            values = {item["key"]: item["value"] for item in items or ()}
            found = ExceptionInfo(values.get(names.EXCEPTION_TYPE, ""), values.get(names.EXCEPTION_MESSAGE, ""))
    return found


def _duration(start_ns: int, duration_ns: int) -> int:
    """The duration, with an end that 64 bits can hold; 0 for an end before the start, which wraps to 2^63 and more."""
    return 0 if duration_ns > _LATEST_NS else min(duration_ns, _LATEST_NS - start_ns)


def _count(text: str) -> int:
    """A token count out of an attribute; 0 when it is absent, no whole number, or none that 32 bits can hold."""
    found = int(text) if text.isascii() and text.isdigit() and len(text) <= len(str(_MOST_TOKENS)) else 0
    return found if found <= _MOST_TOKENS else 0
