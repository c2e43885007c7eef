"""otel_traces rows → spans: duplicates collapse, attributes become columns, each dialect spells them out.

Invariant: accepted + rejected = rows that came in, in any order of rows. A span that was delivered twice counts
once, as of its first arrival, so that a repeated delivery changes no revision.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, cast

import polars as pl

from spanloop.converters.enums import UntrainableReason
from spanloop.messages import NO_HISTORY, History, MalformedMessagesError, Message, MessageLog, dump, extend, parse_json
from spanloop.messages.tool_definitions import tool_definitions
from spanloop.semconv import attributes as names

from .. import frames
from ..results.tool_envelopes import open_answer, open_arguments
from ..spans import ExceptionInfo, Problem, Rejected, Span, SpanKind
from .attributes import Attributes
from .canonical_columns import DECODED, MARK, DecodedMessages, by_dialect, with_texts
from .finish_reasons import TOOL_CALL, canonical_finish_reason, choice_finish_reasons
from .span_events import with_logs

_SAMPLING: Final = ("temperature", "top_p", "max_tokens", "seed")
_LATEST_NS: Final = 2**63 - 1
_NO_EXCEPTION: Final = ExceptionInfo("", "")
_MOST_TOKENS: Final = 2**32 - 1
_DIGITS: Final = r"^([0-9]{1,10})(?:\.0*)?$"
"""A count; Cohere's are floats."""


class Normalised(NamedTuple):
    """What the spans say in columns, by (start, trace id, span id), and the rows that are none."""

    told: pl.DataFrame
    """With the number of each row, ``_row``."""
    decoded: DecodedMessages
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
    canonical, decoded = by_dialect(unique, attributes)
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
    places = canonical.select(pl.arg_sort_by("Timestamp", "TraceId", "SpanId")).to_series()
    ordered = canonical if places.is_sorted() else canonical.rechunk()[places]
    ordered = ordered.filter(~is_foreign) if len(foreign) else ordered
    return Normalised(_told(ordered, decoded), decoded, rejected, attributes)


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


def _told(frame: pl.DataFrame, decoded: DecodedMessages) -> pl.DataFrame:
    """Canonical columns as what they mean: numbers, truth values, and text that is never null."""
    return frame.select(
        "_row",
        pl.col(pl.String)
        .exclude("input_tokens", "output_tokens", *_SAMPLING, "error_type", "StatusMessage")
        .fill_null(""),
        *_error_columns(frame, decoded),
        pl.col(_SAMPLING).fill_null("").replace({"null": "", "None": ""}),
        pl.col("Timestamp", "IngestedAt").cast(pl.Int64),
        pl.col("DroppedAttributesCount").fill_null(0),
        pl.col("event_names", "event_attributes"),
        _duration().alias("Duration"),
        (_is_marked_failed() & ~_worked()).alias("is_error"),
        (pl.col("is_streaming").fill_null("").str.to_lowercase() == "true").alias("streams"),
        _count("input_tokens"),
        _count("output_tokens"),
    )


def read_spans(normalised: Normalised, log: MessageLog) -> list[Span]:
    """Spans out of what ``normalise`` found: column by column, and row by row only what has content to be read."""
    columns: dict[str, list[Any]] = {name: normalised.told[name].to_list() for name in normalised.told.columns}
    if not columns["_row"]:
        return []
    kinds = [_KINDS[kind] for kind in columns["kind"]]
    histories, said, after, tools, problems = zip(*_contents(columns, kinds, normalised, log), strict=True)
    answers = [open_answer(text) if text else _NO_ANSWER for text in columns["tool_result"]]
    results, answered, have_failed = zip(*answers, strict=True)
    reasons = [
        canonical_finish_reason(text)
        or next((canonical_finish_reason(message.finish_reason) for message in output), "")
        for text, output in zip(columns["finish_reasons"], said, strict=True)
    ]
    found = zip(
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
        columns["streams"],
        _sampling(columns),
        columns["input_tokens"],
        columns["output_tokens"],
        tools,
        histories,
        said,
        after,
        problems,
        columns["tool_name"],
        [text or identity for text, identity in zip(columns["tool_call_id"], answered, strict=True)],
        [open_arguments(text) if text else "" for text in columns["tool_arguments"]],
        results,
        strict=True,
    )
    return list(map(Span._make, found))


_KINDS: Final = {"": SpanKind.OTHER, **{kind.value: kind for kind in SpanKind}}
_NO_ANSWER: Final = open_answer("")


def _sampling(columns: dict[str, list[Any]]) -> list[tuple[tuple[str, str], ...]]:
    """The sampling parameters that each span names; calls of one agent mostly share them."""
    known: dict[tuple[str, ...], tuple[tuple[str, str], ...]] = {}
    found: list[tuple[tuple[str, str], ...]] = []
    for values in zip(*(columns[name] for name in _SAMPLING), strict=True):
        if values not in known:
            known[values] = tuple((name, value) for name, value in zip(_SAMPLING, values, strict=True) if value)
        found.append(known[values])
    return found


class _Content(NamedTuple):
    history: History
    output: tuple[Message, ...]
    output_chain: tuple[bytes, ...]
    tools: str
    problem: Problem | None


class _Told(NamedTuple):
    """What a model call's attributes say, as text."""

    row: int
    trace_id: str
    span_id: str
    input: str
    output: str
    system: str
    tools: str
    dropped_attributes: int
    finish_reasons: str


_TOLD: Final = (
    "_row",
    "TraceId",
    "SpanId",
    "input_messages",
    "output_messages",
    "system_instructions",
    "tools",
    "DroppedAttributesCount",
    "finish_reasons",
)


def _contents(
    columns: dict[str, list[Any]], kinds: list[SpanKind], normalised: Normalised, log: MessageLog
) -> list[_Content]:
    told = zip(*(columns[name] for name in _TOLD), strict=True)
    return [
        _content(log, normalised, _Told(*values)) if kind is SpanKind.LLM else _NO_CONTENT
        for kind, values in zip(kinds, told, strict=True)
    ]


_NO_CONTENT: Final = _Content(NO_HISTORY, (), (), "[]", None)


def _content(log: MessageLog, normalised: Normalised, told: _Told) -> _Content:
    attribute, decoded = names.GEN_AI_INPUT_MESSAGES, normalised.decoded
    history = NO_HISTORY
    try:
        if told.input == DECODED:
            history = log.history(log.of_objects(decoded.input[told.row]), told.system)
        else:
            history = log.read_history(told.input, told.trace_id, told.system)
        attribute = names.GEN_AI_OUTPUT_MESSAGES
        if told.output == DECODED:
            said = log.of_objects(decoded.output[told.row])
        else:
            said = log.read(told.output) if told.output else ()
        if len(said) > 1:
            said = _with_finish_reasons(said, choice_finish_reasons(told.finish_reasons))
        attribute = names.GEN_AI_TOOL_DEFINITIONS
        tools = canonical_tools(told.tools)
    except (MalformedMessagesError, RecursionError) as error:
        if isinstance(error, MalformedMessagesError) and error.cut_text:
            key = normalised.attributes.key_of(told.row, error.cut_text)
            attribute = key if key not in str(error) else attribute
        detail = f"span {told.span_id}, attribute {attribute}: {error}"
        return _NO_CONTENT._replace(history=history, problem=Problem(UntrainableReason.MALFORMED_MESSAGES, detail))
    after = tuple([extend(history.digest, message) for message in said])
    return _Content(history, said, after, tools, _problem(told, history, said))


def _with_finish_reasons(choices: tuple[Message, ...], reasons: Sequence[str]) -> tuple[Message, ...]:
    """The choices of an answer, each with its reason out of a list of as many; one that has its own keeps it."""
    if len(choices) != len(reasons):
        return choices
    return tuple(
        choice if choice.finish_reason else choice._replace(finish_reason=reason)
        for choice, reason in zip(choices, reasons, strict=True)
    )


def _problem(told: _Told, history: History, said: tuple[Message, ...]) -> Problem | None:
    what = _said_wrong(history, said, canonical_finish_reason(told.finish_reasons))
    if told.dropped_attributes and (what is None or what[0] is not UntrainableReason.REDACTED_CONTENT):
        return Problem(
            UntrainableReason.DROPPED_ATTRIBUTES,
            f"span {told.span_id}: {told.dropped_attributes} attributes dropped by the SDK's limit (expected 0)",
        )
    return None if what is None else Problem(what[0], f"span {told.span_id}, attribute {what[1]}")


def _said_wrong(history: History, said: tuple[Message, ...], reason: str) -> tuple[UntrainableReason, str] | None:
    """Why the messages of a call cannot be trained on: the reason, and which attribute lacks what."""
    given, answered = names.GEN_AI_INPUT_MESSAGES, names.GEN_AI_OUTPUT_MESSAGES
    facts = history.facts
    if facts.is_redacted or any(message.is_redacted for message in said):
        return UntrainableReason.REDACTED_CONTENT, f"{given if facts.is_redacted else answered}: redacted"
    missing = ""
    if not history.length or not said:
        missing = f"{answered if history.length else given}: absent"
    elif gap := _gap(history):
        missing = f"{given}: {gap}"
    elif not reason and not any(message.finish_reason or _says_something(message) for message in said):
        missing = f"{answered}: nothing is said, nor why"
    elif any(_lost_its_call(message, reason) for message in said[:1]):
        missing = f"{answered}: ends for a tool call that was not recorded"
    return (UntrainableReason.MISSING_CONTENT, missing) if missing else None


def _gap(history: History) -> str:
    """What is missing in a call's input; empty where it may be whole."""
    facts = history.facts
    if missing := facts.course.missing(history.messages):
        return missing
    return "nobody says anything in it" if facts.is_asked and not facts.says_something else ""


def _lost_its_call(message: Message, reason: str) -> bool:
    """Whether an answer ends for a tool call and is words at most: APIs say so only where there is one."""
    asks = (reason or canonical_finish_reason(message.finish_reason)) == TOOL_CALL
    return asks and not message.tool_calls and _OTHER_PART.search(message.json) is None


def _says_something(message: Message) -> bool:
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
    found = _tool_list(parse_json(text))
    if not isinstance(found, list):
        raise MalformedMessagesError(f"expected a list of tools, got {type(found).__name__}")
    return dump([_tool(item) for item in tool_definitions(cast("list[object]", found))])


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
    found = _NO_EXCEPTION
    for name, items in events:
        if name == names.EXCEPTION_EVENT_NAME:
            values = {item["key"]: item["value"] for item in items or ()}
            found = _without_traceback(values.get(names.EXCEPTION_TYPE, ""), values.get(names.EXCEPTION_MESSAGE, ""))
    return found


_REPR: Final = re.compile(r"""(\w+)\((?P<quote>['"])(.*)(?P=quote),?\)\s*$""", re.DOTALL)


def _without_traceback(kind: str, message: str) -> ExceptionInfo:
    """LangSmith writes ``repr(error)`` and its traceback as the message of an ``Exception``."""
    head, is_long, _ = message.partition("Traceback (most recent call last):")
    told = _REPR.match(head) if is_long and kind == "Exception" else None
    return ExceptionInfo(told.group(1), told.group(3)) if told else ExceptionInfo(kind, message)


def _duration() -> pl.Expr:
    """The duration, with an end that 64 bits can hold; 0 for an end before the start, which wraps to 2^63 and more."""
    given = pl.col("Duration").fill_null(0)
    left = _LATEST_NS - pl.col("Timestamp").cast(pl.Int64).clip(0)
    return pl.when(given > _LATEST_NS).then(0).otherwise(pl.min_horizontal(given.cast(pl.Int64, strict=False), left))


def _error_columns(frame: pl.DataFrame, decoded: DecodedMessages) -> tuple[pl.Expr, pl.Expr]:
    """Type and text of each row's error.

    Where a request failed, Claude Code answers in the model's place, with the words of the error: as a model that is
    none, or, through some tracers, as one that read and wrote no token.
    """
    kept = pl.col("error_type").fill_null(""), pl.col("StatusMessage").fill_null("")
    is_placeholder = pl.any_horizontal(pl.col("request_model", "response_model").fill_null("") == _NO_MODEL)
    is_uncounted = pl.all_horizontal(pl.col("input_tokens", "output_tokens").fill_null("") == "0")
    is_call = pl.col("kind").fill_null("") == SpanKind.LLM.value
    if not frame.select((is_call & (is_placeholder | is_uncounted)).any()).item():
        return kept
    said = with_texts("output_messages", decoded.output).fill_null("")
    has_failed = is_call & (is_placeholder | (is_uncounted & said.str.contains(_CLAUDE_ERROR)))
    return (
        pl.when(has_failed & (kept[0] == "")).then(pl.lit("api_error")).otherwise(kept[0]).alias("error_type"),
        pl.when(has_failed & (kept[1] == "")).then(said).otherwise(kept[1]).alias("StatusMessage"),
    )


_NO_MODEL: Final = "<synthetic>"
_CLAUDE_ERROR: Final = r'^\[?\{[^{]*\{[^{}]*"API Error: '


def _is_marked_failed() -> pl.Expr:
    return pl.col("StatusCode").fill_null("").str.to_lowercase().is_in(["error", "status_code_error"])


def _worked() -> pl.Expr:
    """Whether a model call answered and ended as it should, without an error of its own.

    OpenInference's processor for Vercel's SDK marks each span that a tool's error has to do with.
    """
    reason = pl.col("finish_reasons").fill_null("")
    return (
        (pl.col("kind").fill_null("") == SpanKind.LLM.value)
        & (pl.col("error_type").fill_null("") == "")
        & pl.col("event_names").is_null()
        & (reason != "")
        & ~reason.str.to_lowercase().str.contains_any(["error", "fail"])
        & (pl.col("output_messages").fill_null("") != "")
    )


def _count(column: str) -> pl.Expr:
    """A token count out of an attribute; 0 when it is absent, no whole number, or none that 32 bits can hold."""
    found = pl.col(column).str.extract(_DIGITS).cast(pl.Int64, strict=False).fill_null(0)
    return pl.when(found > _MOST_TOKENS).then(0).otherwise(found).alias(column)
