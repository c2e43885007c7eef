"""Results of tools that only a message of the user holds: ReAct's "Observation:", smolagents, Hermes, plain sentences.

Such a harness writes what a tool answered into the conversation, and often reads the calls out of the model's text as
well. Invariant: a result needs a call that is named: by the API, by the model's text in a form that harnesses read, or
by the harness itself. What the model said stays the text that it is.
"""

import ast
import builtins
import json
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple, cast

from msgspec.structs import replace

from spanloop.messages import Message, ToolCall, dump, parse_json_or_none
from spanloop.messages.json_values import as_fields, as_list, python_object

from ..linking.continuation import Continuation
from ..spans import Span
from .tool_results import ShownAnswer

_MOST_CANDIDATES: Final = 3
"""So many later calls are looked at where none continues a call: a rewritten prompt may begin a conversation."""

_NAME: Final = r"""[`'"\[*]*(?P<name>[A-Za-z_][\w.-]*)[`'"\]*]*"""
_GIVEN: Final = r"(?: \(.{0,80}?\))?"
_LABELS: Final = tuple(
    re.compile(rf"\s*(?:Call id: (?P<id>\S+)\s*\n\s*)?{label}\s*(?P<text>.*)", re.DOTALL | re.IGNORECASE)
    for label in (
        r"(?:\*\*)?Observations?(?: \d+)?(?:\*\*)?:(?:\*\*)?",
        r"(?P<error>Error):[^\S\n]*\n",
        rf"\[?(?:Tool|Function)(?: call)? (?:result|response|output)s?(?: (?:for|of|from) {_NAME})?{_GIVEN}\]?:",
        rf"(?:Results?|Output|Response) (?:for|of|from) (?:the )?(?:tool |function )?{_NAME}{_GIVEN}:",
        rf"(?:The )?(?:Tool|Function) {_NAME} (?:returned|responded|answered|result|(?P<error>failed))[^:\n]{{0,30}}:",
    )
)
_TAGGED: Final = re.compile(
    r"<(?P<tag>tool_response|tool_result|tool_output|observation|function_result|function_response)\b[^>]*>"
    r"(?P<text>.*?)</(?P=tag)>",
    re.DOTALL,
)
_CALLING: Final = re.compile(r"\s*Calling tools:\s*(?=\[)")
_ENDS_OBSERVATION: Final = re.compile(r"\n\s*(?:Thought|Question|Reflection)(?: \d+)?:")

_REACT: Final = re.compile(
    rf"^[*\s]*Action(?: \d+)?:[*\s]*{_NAME}[^\S\n]*\n+[*\s]*Action[ _]Input(?: \d+)?:[*\s]*(?P<input>.*?)"
    r"(?=\n\s*Observation|\Z)",
    re.DOTALL | re.MULTILINE | re.IGNORECASE,
)
_BRACKETS: Final = re.compile(
    rf"^[*\s]*Action(?: \d+)?:[*\s]*{_NAME}(?:\[(?P<input>[^\n]*)\]|\((?P<arguments>[^\n]*)\))[^\S\n]*$",
    re.MULTILINE | re.IGNORECASE,
)
_BLOB: Final = re.compile(r"(?:^\s*|Action:\s*|^)(?:```(?:json)?\s*)?(?=\{)", re.MULTILINE | re.IGNORECASE)
_HERMES: Final = re.compile(r"<tool_call>\s*(\{.*?\})\s*</tool_call>", re.DOTALL)
_CODE: Final = re.compile(r"<code>\n?(.*?)</code>|```(?:py|python)\n(.*?)```", re.DOTALL)
_NAME_KEYS: Final = ("action", "name", "tool_name", "tool")
_ARGUMENT_KEYS: Final = ("action_input", "arguments", "args", "tool_arguments", "tool_input", "parameters", "input")
_FORMS: Final = ("Action", "tool_call>", '"action', '"tool', '"name"', "<code>", "```py")
_MOST_CODE: Final = 20_000


class _Observation(NamedTuple):
    """A tool's result in the text of a harness."""

    content: str
    id: str = ""
    name: str = ""
    is_error: bool = False


def with_observed_calls(
    calls: Sequence[Span], next_calls: Sequence[tuple[Span, Continuation] | None]
) -> tuple[Sequence[Span], dict[int, list[ShownAnswer]]]:
    """The calls of an episode with the tool calls of their texts that a later message answers, and these answers.

    Args:
        calls: The episode's model calls, in their order.
        next_calls: For each call the one that comes next in its thread, and what the two have in common.

    Returns:
        The calls, and by index one answer for each tool call in its order; a call without an index has none in this
        form.
    """
    changed: dict[int, Span] = {}
    answers: dict[int, list[ShownAnswer]] = {}
    for index, call in enumerate(calls):
        next_call = next_calls[index]
        newest = None if next_call is None else next_call[0].history.message
        if not call.output or (newest is not None and newest.tool_responses):
            continue
        observations, new_messages = _observations(call, calls[index + 1 : index + 1 + _MOST_CANDIDATES], next_call)
        if not observations:
            continue
        tool_calls = call.output[0].tool_calls or tuple(_written_calls(call.output[0], new_messages))
        matched = _matched(tool_calls, observations)
        if matched:
            answers[index] = matched
            if not call.output[0].tool_calls:
                first, *others = call.output
                changed[index] = replace(call, output=(replace(first, tool_calls=tool_calls), *others))
    return ([changed.get(index, call) for index, call in enumerate(calls)] if changed else calls), answers


def _matched(tool_calls: Sequence[ToolCall], observations: Sequence[_Observation]) -> list[ShownAnswer]:
    """One answer for each call, by id, else by order; none where they do not match one to one."""
    if not tool_calls or len(tool_calls) != len(observations):
        return []
    by_id = {observation.id: observation for observation in observations if observation.id}
    if all(call.id in by_id for call in tool_calls) and len(by_id) == len(tool_calls):
        observations = [by_id[call.id] for call in tool_calls]
    elif any(one.name not in {"", call.name} for call, one in zip(tool_calls, observations, strict=True)):
        return []
    return [
        ShownAnswer(call.id, observation.content, observation.is_error)
        for call, observation in zip(tool_calls, observations, strict=True)
    ]


def _observations(
    call: Span, later: Sequence[Span], next_call: tuple[Span, Continuation] | None
) -> tuple[list[_Observation], Sequence[Message]]:
    """The results in the messages that the next call was sent beside the input of ``call``, and these messages."""
    if next_call is None:
        return _rewritten(call, later), ()
    after, continuation = next_call
    newest, new_messages = after.history.message, continuation.new_messages
    if newest is None or newest.role == "system":
        return [], ()
    if any(message.tool_responses for message in new_messages):
        return [], ()
    users = (message for message in new_messages if message.role in {"user", "tool"} and message.text)
    observations = [observation for message in users for observation in _read(message.text)]
    return observations or _rewritten(call, (after,)), new_messages


def _rewritten(call: Span, later: Sequence[Span]) -> list[_Observation]:
    """The result behind the model's own text, in a message that holds the whole run so far."""
    text = call.output[0].text.strip()
    if not text or not any(form in text for form in _FORMS):
        return []
    for other in later:
        newest = other.history.message
        if newest is None or newest.role == "system":
            continue
        _, separator, rest = newest.text.rpartition(text)
        if separator and rest:
            return list(_read(rest, ends=True))
    return []


def _read(text: str, *, ends: bool = False) -> Iterator[_Observation]:
    tagged = list(_TAGGED.finditer(text)) if text.lstrip().startswith("<") else []
    if tagged:
        yield from (_Observation(match["text"].strip()) for match in tagged)
        return
    match = next((label_match for label in _LABELS if (label_match := label.match(text))), None)
    if match is None:
        return
    groups, content = match.groupdict(), match["text"]
    if ends and (end := _ENDS_OBSERVATION.search(content)):
        content = content[: end.start()]
    yield _Observation(content.strip(), groups["id"] or "", groups.get("name") or "", bool(groups.get("error")))


def _written_calls(output: Message, new_messages: Sequence[Message]) -> Iterator[ToolCall]:
    """The tool calls that the harness lists, else those that the model's text holds."""
    for message in new_messages:
        if calling := _CALLING.match(message.text):
            listed = as_list(python_object(message.text[calling.end() :]))
            for item in map(as_fields, listed):
                function = as_fields(item.get("function"))
                yield _call(function.get("name"), function.get("arguments"), str(item.get("id") or ""))
            if listed:
                return
    text = output.text
    if not any(form in text for form in _FORMS):
        return
    for read in (_hermes_calls, _react_call, _blob_call, _code_call):
        calls = list(read(text))
        if calls:
            yield from calls
            return


def _hermes_calls(text: str) -> Iterator[ToolCall]:
    for match in _HERMES.finditer(text):
        yield from _call_of_fields(as_fields(parse_json_or_none(match[1])))


def _react_call(text: str) -> Iterator[ToolCall]:
    match = _last(_REACT, text)
    if match is not None:
        yield _call(match["name"], match["input"].strip().removeprefix("```json").strip("`\n "))
        return
    match = _last(_BRACKETS, text)
    if match is not None and match["input"] is not None:
        yield _call(match["name"], match["input"])
    elif match is not None:
        yield from _calls_of_code(f"{match['name']}({match['arguments']})")


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    return next(iter(deque(pattern.finditer(text), maxlen=1)), None)


def _blob_call(text: str) -> Iterator[ToolCall]:
    """The first JSON object that names a tool and its arguments."""
    for match in islice(_BLOB.finditer(text), _MOST_CANDIDATES):
        try:
            value, _ = json.JSONDecoder().raw_decode(text, match.end())
        except (ValueError, RecursionError):
            continue
        calls = list(_call_of_fields(as_fields(value)))
        if calls:
            yield from calls
            return


def _code_call(text: str) -> Iterator[ToolCall]:
    blocks = [match[1] or match[2] for match in _CODE.finditer(text)]
    if len(blocks) == 1 and len(blocks[0]) <= _MOST_CODE:
        yield from _calls_of_code(blocks[0])


def _calls_of_code(code: str) -> Iterator[ToolCall]:
    """The call of a function that the code neither defines nor imports, where it is the only one."""
    try:
        tree = ast.parse(code.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return
    nodes = list(ast.walk(tree))
    known = set(dir(builtins))
    for node in nodes:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
            known.add(node.name)
        elif isinstance(node, ast.alias):
            known.add(node.asname or node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            known.add(node.id)
    calls = [node for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    calls = [node for node in calls if isinstance(node.func, ast.Name) and node.func.id not in known]
    if len(calls) != 1:
        return
    (node,) = calls
    values: dict[str, object] = {f"argument_{place}": _literal(value) for place, value in enumerate(node.args)}
    values |= {keyword.arg: _literal(keyword.value) for keyword in node.keywords if keyword.arg}
    yield _call(ast.unparse(node.func), values)


def _literal(node: ast.expr) -> object:
    """The value of a literal that JSON can carry, else the code."""
    try:
        value = cast("object", ast.literal_eval(node))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        value = None
    is_json = value is not None and python_object(repr([value])) is not None
    return value if is_json else ast.unparse(node)


def _call_of_fields(fields: Mapping[str, object]) -> Iterator[ToolCall]:
    name = next((fields[key] for key in _NAME_KEYS if isinstance(fields.get(key), str)), None)
    arguments = next((key for key in _ARGUMENT_KEYS if key in fields), None)
    if name and arguments is not None:
        yield _call(name, fields[arguments])


def _call(name: object, arguments: object, identity: str = "") -> ToolCall:
    decoded = parse_json_or_none(arguments) if isinstance(arguments, str) else arguments
    fields = as_fields(decoded)
    if not fields and arguments not in (None, "", {}, "{}"):
        fields = {"input": arguments}
    return ToolCall(identity, str(name or ""), dump(fields), is_valid=True)


__all__ = ["with_observed_calls"]
