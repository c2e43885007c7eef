"""otel_traces rows → spans: duplicates collapse, attributes become columns, each dialect spells them out.

Invariant: accepted + rejected = rows that came in, in any order of rows. A span that was delivered twice counts
once, as of its first arrival, so that a repeated delivery changes no revision.
"""

import re
from functools import lru_cache
from itertools import compress
from typing import Final, NamedTuple, cast

import polars as pl

from spanloop.messages import MessageLog, dump
from spanloop.semconv import attributes as names

from .. import frames
from ..results.tool_envelopes import open_answer, open_arguments
from ..spans import ExceptionInfo, Rejected, Span, SpanKind
from .attributes import Attributes
from .call_content import read_contents
from .canonical_columns import MARK, Columns, read_columns
from .finish_reasons import canonical_finish_reason
from .span_events import with_logs
from .two_dialects import with_second_dialect
from .usage_details import cached_token_texts, first_token_times

_SAMPLING: Final = ("temperature", "top_p", "max_tokens", "seed")
_LATEST_NS: Final = 2**63 - 1
_NO_EXCEPTION: Final = ExceptionInfo("", "")
_MOST_TOKENS: Final = 2**32 - 1
_DIGITS: Final = re.compile(r"([0-9]{1,10})(?:\.0*)?\Z")
"""A count; Cohere's are floats."""


class Normalised(NamedTuple):
    """The columns of the spans, by (start, trace id, span id), and the rejected rows."""

    columns: Columns
    rejected: list[Rejected]
    attributes: Attributes


def normalise(
    frame: pl.DataFrame, logs: pl.DataFrame | None = None, attributes: Attributes | None = None
) -> Normalised:
    """Read every row of ``frame`` by the first dialect that knows it; ``read_spans`` makes spans of them.

    Args:
        frame: The columns of ``frames.SPANS``.
        logs: The columns of ``frames.LOGS``; records that name a span count as its events.
        attributes: Of ``frame``, where they were taken apart before.
    """
    whole = frames.conform(frame, frames.SPANS)
    is_sound = whole.select(_IS_SOUND).to_series()
    unsound = () if is_sound.all() else whole.filter(~is_sound).select("TraceId", "SpanId").rows()
    rejected = [
        Rejected(trace_id or "", span_id or "", "malformed_span", "expected a trace id, a span id and times")
        for trace_id, span_id in unsound
    ]
    unique, duplicates = _collapse(whole.filter(is_sound) if rejected else whole)
    if attributes is None or unique.height < attributes.height:
        attributes = Attributes(unique["SpanAttributes"])
    unique = unique if logs is None else with_logs(unique, logs)
    rejected += [
        Rejected(trace_id, span_id, "duplicate_span", "delivered more than once; the first delivery counts")
        for trace_id, span_id in duplicates.iter_rows()
    ]
    rows = unique.drop("SpanAttributes").with_row_index("_row")
    places = rows.select(pl.arg_sort_by("Timestamp", "TraceId", "SpanId")).to_series()
    ordered = rows if places.is_sorted() else rows.rechunk()[places]
    columns = _typed(ordered)
    first = read_columns(ordered, attributes)
    columns |= with_second_dialect(first, ordered, attributes, read_columns)
    numbers = ordered["_row"].to_numpy()
    columns["cached_tokens"] = cached_token_texts(attributes, numbers)
    columns["first_token_ns"] = first_token_times(attributes, numbers, columns["Timestamp"])
    rejected += [
        Rejected(
            trace_id,
            span_id,
            "unsupported_dialect",
            f"no dialect reads the model call of scope {scope!r}, told by attribute {mark!r}: see docs/dialects.md",
        )
        for trace_id, span_id, scope, mark in zip(
            columns["TraceId"], columns["SpanId"], columns["ScopeName"], columns[MARK], strict=True
        )
        if mark is not None
    ]
    is_read = [mark is None for mark in columns[MARK]]
    if not all(is_read):
        columns = {name: list(compress(values, is_read)) for name, values in columns.items()}
    return Normalised(_with_errors(columns), rejected, attributes)


_IS_SOUND: Final = (
    (pl.col("TraceId").fill_null("") != "")
    & (pl.col("SpanId").fill_null("") != "")
    & pl.col("Timestamp").is_not_null()
    & pl.col("IngestedAt").is_not_null()
).alias("is_sound")


def _collapse(frame: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The first delivery of each span, in any order, and the keys of the others."""
    keys = ["TraceId", "SpanId"]
    if frame.select(pl.struct(keys).n_unique()).item() == frame.height:
        return frame, frame.clear().select(keys)
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
    return marked.filter(pl.col("_is_first")).drop("_is_first"), marked.filter(~pl.col("_is_first")).select(keys)


def _typed(frame: pl.DataFrame) -> Columns:
    """The columns of spans beside their attributes: numbers, truth values, and text that is never null."""
    columns = {name: values.to_list() for name, values in frame.select(_TYPED).to_dict().items()}
    if frame["Events.Name"].list.len().sum():
        return columns | {name: values.to_list() for name, values in frame.select(_EXCEPTIONS).to_dict().items()}
    return {**columns, "event_names": [None] * frame.height, "event_attributes": [None] * frame.height}


def _duration() -> pl.Expr:
    """The duration, with an end that 64 bits can hold; 0 for an end before the start, which wraps to 2^63 and more."""
    given = pl.col("Duration").fill_null(0)
    left = _LATEST_NS - pl.col("Timestamp").cast(pl.Int64).clip(0)
    return pl.when(given > _LATEST_NS).then(0).otherwise(pl.min_horizontal(given.cast(pl.Int64, strict=False), left))


_TEXTS: Final = ("TraceId", "SpanId", "ParentSpanId", "SpanName", "ServiceName", "ScopeName", "StatusMessage")
_TYPED: Final = (
    pl.col("_row"),
    pl.col(_TEXTS).fill_null(""),
    pl.col("Timestamp", "IngestedAt").cast(pl.Int64),
    pl.col("DroppedAttributesCount").fill_null(0),
    _duration().alias("Duration"),
    pl.col("StatusCode").fill_null("").str.to_lowercase().is_in(["error", "status_code_error"]).alias("is_error"),
)
_IS_EXCEPTION: Final = pl.col("Events.Name").list.eval(pl.element() == names.EXCEPTION_EVENT_NAME).list.any()
_EXCEPTIONS: Final = (
    pl.when(_IS_EXCEPTION).then("Events.Name").alias("event_names"),
    pl.when(_IS_EXCEPTION).then("Events.Attributes").alias("event_attributes"),
)
"""Events of the spans that have an exception among them; null elsewhere."""


def _with_errors(columns: Columns) -> Columns:
    """``columns`` with what shows in a span's content: that a call worked, though it is marked, or failed, though not.

    OpenInference's processor for Vercel's SDK marks each span that a tool's error has to do with. Where a request
    failed, Claude Code answers in the model's place, with the words of the error: as a model that is none, or, through
    some tracers, as one that read and wrote no token.
    """
    is_error, error_types, messages = (columns[name].copy() for name in ("is_error", "error_type", "StatusMessage"))
    for row, kind in enumerate(columns["kind"]):
        if kind != _MODEL_CALL:
            continue
        if is_error[row] and _has_worked(columns, row):
            is_error[row] = False
        is_placeholder = _NO_MODEL in {columns["request_model"][row], columns["response_model"][row]}
        if is_placeholder or (columns["input_tokens"][row] == "0" == columns["output_tokens"][row]):
            output = columns["output_messages"][row]
            text = output if isinstance(output, str) else dump(output)
            if is_placeholder or _CLAUDE_ERROR.match(text):
                error_types[row] = error_types[row] or "api_error"
                messages[row] = messages[row] or text
    return {**columns, "is_error": is_error, "error_type": error_types, "StatusMessage": messages}


_MODEL_CALL: Final = SpanKind.LLM.value
_NO_MODEL: Final = "<synthetic>"
_CLAUDE_ERROR: Final = re.compile(r'\[?\{[^{]*\{[^{}]*"API Error: ')


def _has_worked(columns: Columns, row: int) -> bool:
    """Whether a model call answered and ended as it should, without an error of its own."""
    reason = columns["finish_reasons"][row].lower()
    has_ended = bool(reason) and "error" not in reason and "fail" not in reason
    has_no_error = not columns["error_type"][row] and columns["event_names"][row] is None
    return has_ended and has_no_error and bool(columns["output_messages"][row])


@lru_cache(maxsize=1 << 12)
def _count(text: str) -> int:
    """A token count out of an attribute; 0 when it is absent, no whole number, or none that 32 bits can hold."""
    match = _DIGITS.match(text) if text else None
    count = int(match[1]) if match else 0
    return count if count <= _MOST_TOKENS else 0


def read_spans(normalised: Normalised, log: MessageLog) -> list[Span]:
    """Spans out of what ``normalise`` found: column by column, and row by row only what has content to be read."""
    columns = normalised.columns
    if not columns["TraceId"]:
        return []
    kinds = [_KINDS[kind] for kind in columns["kind"]]
    contents = read_contents(columns, normalised.attributes, log)
    answers = [open_answer(text) if text else _NO_ANSWER for text in columns["tool_result"]]
    results, answered, have_failed = zip(*answers, strict=True)
    reasons = [
        canonical_finish_reason(text)
        or (next((canonical_finish_reason(message.finish_reason) for message in output), "") if output else "")
        for text, output in zip(columns["finish_reasons"], contents.outputs, strict=True)
    ]
    spans = map(
        Span,
        zip(columns["TraceId"], columns["SpanId"], strict=True),
        columns["TraceId"],
        columns["SpanId"],
        columns["ParentSpanId"],
        columns["SpanName"],
        kinds,
        columns["ServiceName"],
        columns["ScopeName"],
        columns["Timestamp"],
        columns["Duration"],
        columns["IngestedAt"],
        columns["is_error"],
        columns["StatusMessage"],
        [
            text or ("tool_error" if has_failed else "")
            for text, has_failed in zip(columns["error_type"], have_failed, strict=True)
        ],
        [
            _NO_EXCEPTION if event_names is None else _exception(event_names, attributes)
            for event_names, attributes in zip(columns["event_names"], columns["event_attributes"], strict=True)
        ],
        columns["episode_key"],
        columns["task_id"],
        columns["session_id"],
        columns["conversation_id"],
        columns["agent_name"],
        columns["request_model"],
        columns["response_model"],
        columns["response_id"],
        reasons,
        [text.lower() == "true" for text in columns["is_streaming"]],
        _sampling(columns),
        map(_count, columns["input_tokens"]),
        map(_count, columns["output_tokens"]),
        contents.tools,
        contents.histories,
        contents.outputs,
        contents.output_chains,
        contents.problems,
        columns["tool_name"],
        [text or identity for text, identity in zip(columns["tool_call_id"], answered, strict=True)],
        [open_arguments(text) if text else "" for text in columns["tool_arguments"]],
        results,
        map(_count, columns["cached_tokens"]),
        columns["first_token_ns"],
    )
    return list(spans)


_KINDS: Final = {"": SpanKind.OTHER, **{kind.value: kind for kind in SpanKind}}
_NO_ANSWER: Final = open_answer("")


def _sampling(columns: Columns) -> list[tuple[tuple[str, str], ...]]:
    """The sampling parameters that each span names; calls of one agent mostly share them."""
    known: dict[tuple[str, ...], tuple[tuple[str, str], ...]] = {}
    sampling: list[tuple[tuple[str, str], ...]] = []
    for values in zip(*(columns[name] for name in _SAMPLING), strict=True):
        if values not in known:
            known[values] = tuple(
                (name, value) for name, value in zip(_SAMPLING, values, strict=True) if value not in _UNSET
            )
        sampling.append(known[values])
    return sampling


_UNSET: Final = ("", "null", "None")


def _exception(event_names: object, event_attributes: object) -> ExceptionInfo:
    if not isinstance(event_names, list) or not isinstance(event_attributes, list):
        return _NO_EXCEPTION
    events = zip(
        cast("list[str]", event_names), cast("list[list[dict[str, str]] | None]", event_attributes), strict=False
    )
    exception = _NO_EXCEPTION
    for name, items in events:
        if name == names.EXCEPTION_EVENT_NAME:
            values = {item["key"]: item["value"] for item in items or ()}
            exception = _without_traceback(
                values.get(names.EXCEPTION_TYPE, ""), values.get(names.EXCEPTION_MESSAGE, "")
            )
    return exception


_REPR: Final = re.compile(r"""(\w+)\((?P<quote>['"])(.*)(?P=quote),?\)\s*$""", re.DOTALL)


def _without_traceback(kind: str, message: str) -> ExceptionInfo:
    """LangSmith writes ``repr(error)`` and its traceback as the message of an ``Exception``."""
    head, is_long, _ = message.partition("Traceback (most recent call last):")
    match = _REPR.match(head) if is_long and kind == "Exception" else None
    return ExceptionInfo(match.group(1), match.group(3)) if match else ExceptionInfo(kind, message)
