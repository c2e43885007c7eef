"""The model calls of a plain trace, one after another: which continues which, what it said, what its tools answered.

Invariant: a trace that gets through here has exactly the steps that ``stitch`` and ``steps`` would give it, and nothing
that any rule of ``attribution`` sees. Every call either begins a conversation that no other call of the trace begins
alike, or continues the newest call of one: its input is that call's input, its answer, and then no further answer. What
a call repeats of its history is compared as text and never read again.
"""

import re
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from json.encoder import encode_basestring as quoted
from typing import Final, NamedTuple

from ..attribution import offered_tools
from ..attribution.broken_output import is_call_as_text
from ..finish_reasons import CONTENT_FILTER, LENGTH, TOOL_CALL, canonical_finish_reason
from ..messages import MalformedMessagesError, parse_system_instructions
from ..tool_results import error_in_text
from .pieces import Call, NotPlainError, Piece, after, digest_of, pieces

_MOST_LENGTHS: Final = 16
"""So many lengths of beginnings are tried in a trace of interleaved conversations."""

_UNFINISHED: Final = frozenset({LENGTH, CONTENT_FILTER, "error"})
_OPENING: Final = re.compile(r"s*u+")
"""Roles of a conversation that begins: system messages, then the user's."""

_ROUNDS: Final = (1, 2, 3)
_WHITESPACE: Final = " \t\n\r"


class Calls(NamedTuple):
    """Columns of the model calls of traces that may be plain: by trace, then by start and id."""

    start_ns: list[int]
    end_ns: list[int]
    service_name: list[str]
    is_streaming: list[bool]
    finish_reason: list[str]
    """Canonical; empty where only the answer can tell."""
    input: list[str]
    output: list[str]
    system: list[str]
    tools: list[int]
    """Number of the canonical tool definitions."""


class Tools(NamedTuple):
    """Columns of the tools' spans of the same traces, in the same order."""

    tool_call_id: list[str]
    name: list[str]
    result: list[str]
    duration_ns: list[int]
    span_id: list[str]


class Answer(NamedTuple):
    """What a tool answered to a call."""

    asked: Call
    content: str


class Lane:
    """One conversation of a trace, as far as it has been read."""

    __slots__ = (
        "asked",
        "first",
        "last",
        "question",
        "runs",
        "said",
        "service_name",
        "signs",
        "start",
        "state",
        "text",
    )

    def __init__(self, call: int, text: str, begun: Sequence[Piece], service_name: str) -> None:
        self.first = call
        self.service_name = service_name
        self.start = _start(begun)
        """Digests of the messages up to the user's first."""
        self.question = next(piece.text for piece in begun if piece.role == "user")
        self.text = text
        """Text of the newest call's input, up to the end of its last message."""
        self.state = "[" + ",".join([piece.action for piece in begun])
        self.last = call
        self.said = begun[0]
        self.asked: list[tuple[Call, int | None]] = []
        """Tool calls of the newest answer, each with its span."""
        self.signs: list[tuple[object, ...]] = []
        self.runs = [0 for _ in _ROUNDS]


class Steps:
    """What is found out, a value a call in every list; those of a trace that is not plain are never looked at."""

    def __init__(self, count: int) -> None:
        self.state = [""] * count
        self.action = [""] * count
        self.results = ["[]"] * count
        self.tool_call_count = [0] * count
        self.finish_reason = [""] * count
        self.following: list[int | None] = [None] * count
        self.first = [0] * count
        """The first call of its conversation."""


class Read(NamedTuple):
    """A plain trace."""

    lanes: list[Lane]
    """Its conversations, by their first call."""
    answers: list[Answer]


class Reader:
    """Reads the calls of one trace after another."""

    def __init__(self, calls: Calls, tools: Tools, offered: Sequence[str | None]) -> None:
        """Take the columns.

        Args:
            calls: Of all traces.
            tools: Of all traces.
            offered: The canonical tool definitions that ``calls.tools`` counts; None for those that cannot be read.
        """
        self.steps = Steps(len(calls.input))
        self._answers: list[Answer] = []
        self._calls = calls
        self._tools = tools
        self._offered = [None if text is None else offered_tools(text) for text in offered]

    def read(self, calls: range, tools: range) -> Read:
        """The conversations of one trace.

        Raises:
            NotPlainError: When the trace is not plain.
        """
        column = self._calls
        self._answers = []
        by_id, by_name = self._queues(tools)
        found: list[Lane] = []
        begun: dict[int, dict[str, Lane]] = {}
        lane: Lane | None = None
        for call in calls:
            text = column.input[call]
            if lane is None or not text.startswith(lane.text):
                lane = _continued(text, begun)
            if lane is None:
                lane = self._begin(call, text)
                found.append(lane)
                begun.setdefault(len(lane.text), {})[lane.text] = lane
            else:
                self._continue(lane, call, text)
            self._answer(lane, call, by_id, by_name)
        if len({lane.start for lane in found}) < len(found) or any(by_id.values()):
            raise NotPlainError  # a tool's span with an id that no call asked with is told by its name: see ``steps``
        for lane in found:
            self._take_results(lane, ())
        return Read(found, self._answers)

    def _queues(self, tools: range) -> tuple[dict[str, deque[int]], dict[str, deque[int]]]:
        by_id: dict[str, deque[int]] = defaultdict(deque)
        by_name: dict[str, deque[int]] = defaultdict(deque)
        for tool in tools:
            identity = self._tools.tool_call_id[tool]
            if identity:
                by_id[identity].append(tool)
            else:
                by_name[self._tools.name[tool]].append(tool)
        return by_id, by_name

    def _begin(self, call: int, text: str) -> Lane:
        found = pieces(text)
        system = self._calls.system[call]
        if system and not any(piece.role == "system" for piece in found):
            found.insert(0, _instructions(system))
        if not _OPENING.fullmatch("".join([piece.role[0] for piece in found])):
            raise NotPlainError
        return Lane(call, text.rstrip(_WHITESPACE)[:-1].rstrip(_WHITESPACE), found, self._calls.service_name[call])

    def _continue(self, lane: Lane, call: int, text: str) -> None:
        column, last = self._calls, lane.last
        new = pieces(after(text, len(lane.text)))
        start_ns = column.start_ns[call]
        if (
            not new
            or new[0].role != "assistant"
            or not _is_same(new[0], lane.said)
            or column.end_ns[last] > start_ns
            or column.start_ns[last] >= start_ns
            or column.service_name[call] != lane.service_name
            or column.system[call] != column.system[last]
        ):
            raise NotPlainError
        if len(new) == 2 and new[1].role == "tool":  # the usual case: an answer, and a tool's result
            lane.state = f"{lane.state},{new[0].action},{new[1].action}"
            responses: Iterable[tuple[str, str]] = new[1].responses
        else:
            if any(piece.role not in {"user", "tool"} for piece in new[1:]):
                raise NotPlainError
            lane.state = ",".join([lane.state, *[piece.action for piece in new]])
            responses = [response for piece in new for response in piece.responses]
        self._take_results(lane, responses)
        self.steps.following[last] = call
        lane.text = text.rstrip(_WHITESPACE)[:-1].rstrip(_WHITESPACE)
        lane.last = call

    def _answer(self, lane: Lane, call: int, by_id: dict[str, deque[int]], by_name: dict[str, deque[int]]) -> None:
        found = pieces(self._calls.output[call])
        if len(found) != 1:
            raise NotPlainError
        said = found[0]
        reason = self._calls.finish_reason[call] or canonical_finish_reason(said.finish_reason)
        offered = self._offered[self._calls.tools[call]]
        if (
            offered is None
            or said.role != "assistant"
            or said.responses
            or reason in _UNFINISHED
            or (self._calls.is_streaming[call] and not reason)
        ):
            raise NotPlainError
        steps = self.steps
        steps.first[call] = lane.first
        steps.state[call] = lane.state + "]"
        steps.action[call] = said.action
        steps.finish_reason[call] = reason
        lane.said = said
        if said.calls:
            if offered and any(asked.name not in offered for asked in said.calls):
                raise NotPlainError
            steps.tool_call_count[call] = len(said.calls)
            queues = [by_id.get(asked.id) or by_name.get(asked.name) for asked in said.calls]
            spans = [waiting.popleft() if waiting else None for waiting in queues]
            lane.asked = list(zip(said.calls, spans, strict=True))
        elif reason == TOOL_CALL or not said.text.strip() or is_call_as_text(said.text):
            raise NotPlainError
        else:
            lane.asked = []

    def _take_results(self, lane: Lane, responses: Iterable[tuple[str, str]]) -> None:
        """What the tools answered to the newest call of ``lane``, out of the next call's input and their spans."""
        contents: list[str] = []
        if lane.asked:
            tools = self._tools
            shown = dict(responses)
            unnamed = iter([content for identity, content in responses if not identity])
            written: list[str] = []
            for asked, tool in lane.asked:
                content = shown.get(asked.id) if asked.id else None
                if content is None:
                    content = next(unnamed, None)
                duration_ns, span_id = 0, ""
                if tool is not None:
                    duration_ns, span_id = tools.duration_ns[tool], tools.span_id[tool]
                    content = tools.result[tool] if content is None else content
                if content is None or error_in_text(content) is not None:
                    raise NotPlainError
                contents.append(content)
                written.append(
                    f'{{"tool_call_id":{quoted(asked.id)},"name":{quoted(asked.name)},"status":"ok","error_type":"",'
                    f'"content":{quoted(content)},"duration_ns":{duration_ns},"span_id":{quoted(span_id)}}}'
                )
                self._answers.append(Answer(asked, content))
            self.steps.results[lane.last] = "[" + ",".join(written) + "]"
        _look_for_circles(lane, contents)


def _start(begun: Sequence[Piece]) -> tuple[bytes, ...]:
    found: list[bytes] = []
    for piece in begun:
        found.append(digest_of(piece))
        if piece.role == "user":
            break
    return tuple(found)


def _instructions(text: str) -> Piece:
    try:
        message = parse_system_instructions(text)
    except MalformedMessagesError:
        raise NotPlainError from None
    if message.is_redacted:
        raise NotPlainError
    return Piece("system", message.json, message.json, message.text, (), (), "", message.digest)


def _continued(text: str, begun: dict[int, dict[str, Lane]]) -> Lane | None:
    """The conversation that begins as ``text`` does; None where none does."""
    if len(begun) > _MOST_LENGTHS:
        raise NotPlainError
    for length, lanes in begun.items():
        lane = lanes.get(text[:length])
        if lane is not None:
            if not text.startswith(lane.text):
                raise NotPlainError
            return lane
    return None


def _is_same(one: Piece, other: Piece) -> bool:
    """Whether two answers are one: the same messages, with the same ids."""
    if one.json == other.json:
        return True
    return [call.id for call in one.calls] == [call.id for call in other.calls] and digest_of(one) == digest_of(other)


def _look_for_circles(lane: Lane, contents: list[str]) -> None:
    """Refuse a conversation in which ``attribution.loop`` may see one; it may see none where nothing comes again."""
    said, signs = lane.said, lane.signs
    sign = (said.text.strip(), [(call.name, call.arguments) for call in said.calls], contents)
    for rounds in _ROUNDS:
        if len(signs) >= rounds and signs[-rounds] == sign:
            lane.runs[rounds - 1] += 1
            if lane.runs[rounds - 1] >= 2 * rounds:
                raise NotPlainError
        else:
            lane.runs[rounds - 1] = 0
    signs.append(sign)
