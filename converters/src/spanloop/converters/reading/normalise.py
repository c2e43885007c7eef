"""otel_traces rows → spans: duplicates collapse, attributes become columns, each dialect spells them out.

Invariant: accepted + rejected = rows that came in, in any order of rows. A span that was delivered twice counts
once, as of its first arrival, so that a repeated delivery changes no revision.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import compress
from typing import Final, NamedTuple, cast

import polars as pl

from spanloop.converters.enums import UntrainableReason
from spanloop.messages import NO_HISTORY, History, MalformedMessagesError, Message, MessageLog, dump, extend, parse_json
from spanloop.messages.tool_definitions import tool_definitions
from spanloop.semconv import attributes as names

from .. import frames
from ..dialects import ColumnValue
from ..results.tool_envelopes import open_answer, open_arguments
from ..spans import ExceptionInfo, Problem, Rejected, Span, SpanKind
from .attributes import Attributes
from .canonical_columns import MARK, Columns, read_columns
from .finish_reasons import TOOL_CALL, canonical_finish_reason, choice_finish_reasons
from .span_events import with_logs
from .two_dialects import CONFLICT, with_second_dialect

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
    sound = (pl.col("TraceId").fill_null("") != "") & (pl.col("SpanId").fill_null("") != "")
    timed = pl.col("Timestamp").is_not_null() & pl.col("IngestedAt").is_not_null()
    rejected = [
        Rejected(trace_id or "", span_id or "", "malformed_span", "expected a trace id, a span id and times")
        for trace_id, span_id in whole.filter(~(sound & timed)).select("TraceId", "SpanId").iter_rows()
    ]
    unique, duplicates = _collapse(whole.filter(sound & timed) if rejected else whole)
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
    columns = {"_row": ordered["_row"].to_list(), **_typed(ordered)}
    first = read_columns(ordered, attributes)
    columns |= with_second_dialect(first, ordered, unique["SpanAttributes"], attributes, read_columns)
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
        if kind != SpanKind.LLM.value:
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


_NO_MODEL: Final = "<synthetic>"
_CLAUDE_ERROR: Final = re.compile(r'\[?\{[^{]*\{[^{}]*"API Error: ')


def _has_worked(columns: Columns, row: int) -> bool:
    """Whether a model call answered and ended as it should, without an error of its own."""
    reason = columns["finish_reasons"][row].lower()
    has_ended = bool(reason) and "error" not in reason and "fail" not in reason
    has_no_error = not columns["error_type"][row] and columns["event_names"][row] is None
    return has_ended and has_no_error and bool(columns["output_messages"][row])


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
    histories, outputs, after, tools, problems = zip(*_contents(normalised, kinds, log), strict=True)
    answers = [open_answer(text) if text else _NO_ANSWER for text in columns["tool_result"]]
    results, answered, have_failed = zip(*answers, strict=True)
    reasons = [
        canonical_finish_reason(text)
        or next((canonical_finish_reason(message.finish_reason) for message in output), "")
        for text, output in zip(columns["finish_reasons"], outputs, strict=True)
    ]
    rows = zip(
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
        tools,
        histories,
        outputs,
        after,
        problems,
        columns["tool_name"],
        [text or identity for text, identity in zip(columns["tool_call_id"], answered, strict=True)],
        [open_arguments(text) if text else "" for text in columns["tool_arguments"]],
        results,
        strict=True,
    )
    return list(map(Span._make, rows))


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


class _Content(NamedTuple):
    history: History
    output: tuple[Message, ...]
    output_chain: tuple[bytes, ...]
    tools: str
    problem: Problem | None


class _CallAttributes(NamedTuple):
    """Attributes of a model call: text, or messages that its dialect decoded."""

    row: int
    trace_id: str
    span_id: str
    input: ColumnValue
    output: ColumnValue
    system: str
    tools: str
    dropped_attributes: int
    finish_reasons: str
    conflict: str


_CALL_COLUMNS: Final = (
    "_row",
    "TraceId",
    "SpanId",
    "input_messages",
    "output_messages",
    "system_instructions",
    "tools",
    "DroppedAttributesCount",
    "finish_reasons",
    CONFLICT,
)


def _contents(normalised: Normalised, kinds: list[SpanKind], log: MessageLog) -> list[_Content]:
    rows = zip(*(normalised.columns[name] for name in _CALL_COLUMNS), strict=True)
    return [
        _content(log, normalised.attributes, _CallAttributes(*values)) if kind is SpanKind.LLM else _NO_CONTENT
        for kind, values in zip(kinds, rows, strict=True)
    ]


_NO_CONTENT: Final = _Content(NO_HISTORY, (), (), "[]", None)


def _content(log: MessageLog, attributes: Attributes, call: _CallAttributes) -> _Content:
    attribute = names.GEN_AI_INPUT_MESSAGES
    history = NO_HISTORY
    try:
        if isinstance(call.input, str):
            history = log.read_history(call.input, call.trace_id, call.system)
        else:
            history = log.history(log.of_objects(call.input), call.system)
        attribute = names.GEN_AI_OUTPUT_MESSAGES
        recorded = call.output or []
        output = log.read(recorded) if isinstance(recorded, str) else log.of_objects(recorded)
        if len(output) > 1:
            output = _with_finish_reasons(output, choice_finish_reasons(call.finish_reasons))
        attribute = names.GEN_AI_TOOL_DEFINITIONS
        tools = canonical_tools(call.tools)
    except (MalformedMessagesError, RecursionError) as error:
        if isinstance(error, MalformedMessagesError) and error.cut_text:
            key = attributes.key_of(call.row, error.cut_text)
            attribute = key if key not in str(error) else attribute
        detail = f"span {call.span_id}, attribute {attribute}: {error}"
        return _NO_CONTENT._replace(history=history, problem=Problem(UntrainableReason.MALFORMED_MESSAGES, detail))
    after = tuple([extend(history.digest, message) for message in output])
    return _Content(history, output, after, tools, _problem(call, history, output))


def _with_finish_reasons(choices: tuple[Message, ...], reasons: Sequence[str]) -> tuple[Message, ...]:
    """The choices of an answer, each with its reason out of a list of as many; one that has its own keeps it."""
    if len(choices) != len(reasons):
        return choices
    return tuple(
        choice if choice.finish_reason else choice._replace(finish_reason=reason)
        for choice, reason in zip(choices, reasons, strict=True)
    )


def _problem(call: _CallAttributes, history: History, output: tuple[Message, ...]) -> Problem | None:
    what = _content_problem(history, output, canonical_finish_reason(call.finish_reasons))
    if what is None and call.conflict:
        what = UntrainableReason.MALFORMED_MESSAGES, call.conflict
    if call.dropped_attributes and (what is None or what[0] is not UntrainableReason.REDACTED_CONTENT):
        return Problem(
            UntrainableReason.DROPPED_ATTRIBUTES,
            f"span {call.span_id}: {call.dropped_attributes} attributes dropped by the SDK's limit (expected 0)",
        )
    return None if what is None else Problem(what[0], f"span {call.span_id}, attribute {what[1]}")


def _content_problem(
    history: History, output: tuple[Message, ...], reason: str
) -> tuple[UntrainableReason, str] | None:
    """Why the messages of a call cannot be trained on: the reason, and which attribute lacks what."""
    given, answered = names.GEN_AI_INPUT_MESSAGES, names.GEN_AI_OUTPUT_MESSAGES
    facts = history.facts
    if facts.is_redacted or any(message.is_redacted for message in output):
        return UntrainableReason.REDACTED_CONTENT, f"{given if facts.is_redacted else answered}: redacted"
    missing = ""
    if not history.length or not output:
        missing = f"{answered if history.length else given}: absent"
    elif gap := _gap(history):
        missing = f"{given}: {gap}"
    elif not reason and not any(message.finish_reason or _has_content(message) for message in output):
        missing = f"{answered}: nothing is said, nor why"
    elif any(_lost_its_call(message, reason) for message in output[:1]):
        missing = f"{answered}: ends for a tool call that was not recorded"
    return (UntrainableReason.MISSING_CONTENT, missing) if missing else None


def _gap(history: History) -> str:
    """Return the part that is missing in a call's input; empty where it may be whole."""
    facts = history.facts
    if missing := facts.course.missing(history.messages):
        return missing
    return "nobody says anything in it" if facts.has_prompt and not facts.has_prompt_content else ""


def _lost_its_call(message: Message, reason: str) -> bool:
    """Whether an answer ends for a tool call and is words at most: APIs say so only where there is one."""
    asks = (reason or canonical_finish_reason(message.finish_reason)) == TOOL_CALL
    return asks and not message.tool_calls and _OTHER_PART.search(message.json) is None


def _has_content(message: Message) -> bool:
    words = message.text.strip() or message.tool_calls or message.tool_responses
    return bool(words) or _OTHER_PART.search(message.json) is not None


_OTHER_PART: Final = re.compile(r'"type":\s*"(?!text"|reasoning")')


@lru_cache(maxsize=256)
def canonical_tools(text: str) -> str:
    """Tool definitions as ``[{"name", "description", "parameters"}]``.

    Raises:
        MalformedMessagesError: When the text is not a JSON list of objects.
    """
    if not text:
        return "[]"
    listed = _tool_list(parse_json(text))
    if not isinstance(listed, list):
        raise MalformedMessagesError(f"expected a list of tools, got {type(listed).__name__}")
    return dump([_tool(item) for item in tool_definitions(cast("list[object]", listed))])


def _tool_list(value: object) -> object:
    """The list of tools inside encodings as text and an object around it; the value itself where there is none."""
    for _ in range(_MOST_SHELLS):
        if isinstance(value, str):
            value = parse_json(value)
        elif isinstance(value, dict):
            fields = cast("dict[str, object]", value)
            value = fields.get("tools", fields.get("functions"))
    return value


_MOST_SHELLS: Final = 3


def _tool(item: object) -> dict[str, object]:
    if not isinstance(item, dict):
        raise MalformedMessagesError(f"expected a tool object, got {type(item).__name__}")
    return cast("dict[str, object]", item)


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
