"""The content of model calls: the messages of each, and why they cannot be trained on.

Invariant: each distinct message of a batch is read once. Content that cannot be read is a problem of its call.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import compress
from typing import Final, NamedTuple, cast

import msgspec
from msgspec.structs import replace

from spanloop.converters.enums import UntrainableReason
from spanloop.messages import NO_HISTORY, History, MalformedMessagesError, Message, MessageLog, dump, parse_json
from spanloop.messages.tool_definitions import tool_definitions
from spanloop.semconv import attributes as names

from ..dialects import ColumnValue
from ..spans import Problem, SpanKind
from .attributes import Attributes
from .canonical_columns import Columns
from .finish_reasons import TOOL_CALL, canonical_finish_reason, choice_finish_reasons
from .two_dialects import CONFLICT


class CallContents(NamedTuple):
    """The content of each span, by row; that of spans which are no model calls is empty. See ``Span``."""

    histories: list[History]
    outputs: list[tuple[Message, ...]]
    output_chains: list[tuple[int, ...]]
    tools: list[str]
    problems: list[Problem | None]


class _CallAttributes(msgspec.Struct, gc=False):
    """The attributes of a model call: text, or messages that its dialect decoded."""

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
    """See ``two_dialects``."""


_MODEL_CALL: Final = SpanKind.LLM.value
_COLUMNS: Final = (
    *("_row", "TraceId", "SpanId", "input_messages", "output_messages", "system_instructions", "tools"),
    *("DroppedAttributesCount", "finish_reasons", CONFLICT),
)


def read_contents(columns: Columns, attributes: Attributes, log: MessageLog) -> CallContents:
    """Read the messages of all model calls.

    Args:
        columns: Those of ``normalise``.
        attributes: Of all rows.
        log: Keeps the messages of the batch.
    """
    count = len(columns["kind"])
    contents = CallContents([NO_HISTORY] * count, [()] * count, [()] * count, ["[]"] * count, [None] * count)
    is_call = [kind == _MODEL_CALL for kind in columns["kind"]]
    calls = map(_CallAttributes, *(compress(columns[name], is_call) for name in _COLUMNS))
    for place, call in zip(compress(range(count), is_call), calls, strict=True):
        _read_call(call, attributes, log, contents, place)
    return contents


def _read_call(
    call: _CallAttributes, attributes: Attributes, log: MessageLog, contents: CallContents, place: int
) -> None:
    attribute = names.GEN_AI_INPUT_MESSAGES
    try:
        if isinstance(call.input, str):
            history = log.read_history(call.input, call.trace_id, call.system)
        else:
            history = log.history_of_objects(call.input, call.trace_id, call.system)
        contents.histories[place] = history
        attribute = names.GEN_AI_OUTPUT_MESSAGES
        output: tuple[Message, ...] = ()
        if call.output:
            output = log.read(call.output) if isinstance(call.output, str) else log.of_objects(call.output)
        if len(output) > 1:
            output = _with_finish_reasons(output, choice_finish_reasons(call.finish_reasons))
        attribute = names.GEN_AI_TOOL_DEFINITIONS
        contents.tools[place] = canonical_tools(call.tools)
    except (MalformedMessagesError, RecursionError) as error:
        if isinstance(error, MalformedMessagesError) and error.cut_text:
            key = attributes.key_of(call.row, error.cut_text)
            attribute = key if key not in str(error) else attribute
        detail = f"span {call.span_id}, attribute {attribute}: {error}"
        contents.problems[place] = Problem(UntrainableReason.MALFORMED_MESSAGES, detail)
        return
    contents.outputs[place] = output
    contents.output_chains[place] = tuple([log.number(history.number, message) for message in output])
    contents.problems[place] = _problem(call, history, output)


def _with_finish_reasons(choices: tuple[Message, ...], reasons: Sequence[str]) -> tuple[Message, ...]:
    """The choices of an answer, each with its reason out of a list of as many; one that has its own keeps it."""
    if len(choices) != len(reasons):
        return choices
    return tuple(
        choice if choice.finish_reason else replace(choice, finish_reason=reason)
        for choice, reason in zip(choices, reasons, strict=True)
    )


def _problem(call: _CallAttributes, history: History, output: tuple[Message, ...]) -> Problem | None:
    problem = _content_problem(history, output, canonical_finish_reason(call.finish_reasons))
    if problem is None and call.conflict:
        problem = UntrainableReason.MALFORMED_MESSAGES, call.conflict
    if call.dropped_attributes and (problem is None or problem[0] is not UntrainableReason.REDACTED_CONTENT):
        return Problem(
            UntrainableReason.DROPPED_ATTRIBUTES,
            f"span {call.span_id}: {call.dropped_attributes} attributes dropped by the SDK's limit (expected 0)",
        )
    return None if problem is None else Problem(problem[0], f"span {call.span_id}, attribute {problem[1]}")


def _content_problem(
    history: History, output: tuple[Message, ...], reason: str
) -> tuple[UntrainableReason, str] | None:
    """Why the messages of a call cannot be trained on: the reason, and which attribute lacks what."""
    sent, answered = names.GEN_AI_INPUT_MESSAGES, names.GEN_AI_OUTPUT_MESSAGES
    if history.facts.is_redacted:
        return UntrainableReason.REDACTED_CONTENT, f"{sent}: redacted"
    has_output = bool(reason)
    for message in output:
        if message.is_redacted:
            return UntrainableReason.REDACTED_CONTENT, f"{answered}: redacted"
        has_output = has_output or bool(message.finish_reason) or _has_content(message)
    missing = ""
    if not history.length or not output:
        missing = f"{answered if history.length else sent}: absent"
    elif gap := _gap(history):
        missing = f"{sent}: {gap}"
    elif not has_output:
        missing = f"{answered}: nothing is said, nor why"
    elif _lacks_its_call(output[0], reason):
        missing = f"{answered}: ends for a tool call that was not recorded"
    return (UntrainableReason.MISSING_CONTENT, missing) if missing else None


def _gap(history: History) -> str:
    """Return the part that is missing in a call's input; empty where it may be whole."""
    facts = history.facts
    if missing := facts.course.missing(history):
        return missing
    return "nobody says anything in it" if facts.has_prompt and not facts.has_prompt_content else ""


def _lacks_its_call(message: Message, reason: str) -> bool:
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
