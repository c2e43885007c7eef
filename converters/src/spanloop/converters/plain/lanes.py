"""The model calls of a plain trace, one after another: which continues which, what it said, what its tools answered.

Invariant: a trace that gets through here has exactly the steps that ``stitch`` and ``steps`` would give it, and nothing
that any rule of ``attribution`` sees. Every call either begins a conversation that no other call of the trace begins
alike, or continues the newest call of one: its input is that call's input, its answer, and then no further answer. What
a call repeats of its history is compared as text and never read again.
"""

import re
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from ..attribution import offered_tools
from ..attribution.broken_output import is_call_as_text
from ..finish_reasons import CONTENT_FILTER, ERROR, LENGTH, MALFORMED_CALL, TOOL_CALL, canonical_finish_reason
from ..messages import MalformedMessagesError, parse_system_instructions
from ..tool_results import error_in_text
from ..usual import Call, Response
from .pieces import NotPlainError, Piece, Result, digest_of, end_of, following, piece_of, pieces, spelled, written

_MOST_LENGTHS: Final = 16
"""So many lengths of beginnings are tried in a trace of interleaved conversations."""

UNFINISHED: Final = frozenset({LENGTH, CONTENT_FILTER, ERROR, MALFORMED_CALL})
"""Finish reasons of calls that are not plain."""

_OPENING: Final = re.compile(r"s*u+")
"""Roles of a conversation that begins: system messages, then the user's."""

ROUNDS: Final = (1, 2, 3)
"""So many steps make one round of a circle that is looked for."""


class Calls(NamedTuple):
    """Columns of the model calls of traces that may be plain: by trace, then by start and id."""

    start_ns: list[int]
    end_ns: list[int]
    service_name: list[str]
    is_next: list[bool]
    """Whether times, service and system prompt let the call go on where the one before it in the column ended."""
    is_streaming: list[bool]
    finish_reason: list[str]
    """Canonical; empty where only the answer can tell."""
    input: list[str]
    output: list[str]
    system: list[str]
    agent: list[str]
    is_exact: list[bool]
    """Whether the tokens are known, with log-probabilities."""
    tools: list[int]
    """Number of the canonical tool definitions."""


class Tools(NamedTuple):
    """Columns of the tools' spans of the same traces, in the same order."""

    tool_call_id: list[str]
    name: list[str]
    result: list[str]
    duration_ns: list[int]
    span_id: list[str]
    tells_of_no_error: list[bool]
    """Whether a glance shows that the result tells of no error."""


Answer = tuple[Call, str]
"""A tool call, and what was answered."""

_Sign = tuple[list[str], str, list[tuple[Call, int | None]]]
"""What a step got back, what it said and what it asked for."""


class Lane:
    """One conversation of a trace, as far as it has been read."""

    __slots__ = (
        *("answer", "asked", "first", "last", "question", "runs", "said", "seen", "signs", "spelled", "start"),
        *("state", "text"),
    )

    def __init__(self, call: int, text: str, begun: Sequence[Piece]) -> None:
        self.first = call
        self.start = _start(begun)
        """Digests of the messages up to the user's first."""
        self.question = next(piece.text for piece in begun if piece.role == "user")
        self.text = text
        """Text of the newest call's input, up to the end of its last message."""
        self.state = "[" + ",".join([piece.json for piece in begun])
        self.last = call
        self.said = begun[0]
        """The newest answer."""
        self.answer = ""
        """Its text, stripped."""
        self.spelled = ""
        """The answer as it may be spelled in the next input: see ``pieces.spelled``."""
        self.asked: list[tuple[Call, int | None]] = []
        """Tool calls of the newest answer, each with its span."""
        self.signs: list[_Sign] = []
        self.runs = [0, 0, 0]
        """How often in succession a step was like the one one, two, three steps before."""
        self.seen: set[str] = set()
        """What steps got back."""


class Steps:
    """What is found out, a value a call in every list; those of a trace that is not plain are never looked at."""

    def __init__(self, count: int) -> None:
        self.state: list[str | None] = [""] * count
        """Without the bracket at its end, which costs less when it is set in all of them at once; None: as written."""
        self.action = [""] * count
        self.answer = [""] * count
        """Its text, stripped."""
        self.results = ["[]"] * count
        self.tool_call_count = [0] * count
        self.finish_reason = [""] * count
        self.following: list[int | None] = [None] * count
        self.is_orphan = [False] * count
        """Whether the call's input has answers of tools to calls that are not in it."""
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
        by_id, by_name = self._by_id_and_name(tools)
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
        if by_id or (len(found) > 1 and len({lane.start for lane in found}) < len(found)):
            raise NotPlainError  # a tool's span with an id that no call asked with is told by its name: see ``steps``
        for lane in found:
            self._take_results(lane, [])
        return Read(found, self._answers)

    def _by_id_and_name(self, tools: range) -> tuple[dict[str, int], dict[str, deque[int]]]:
        """The tools' spans of one trace: those with an id by it, the others by their name."""
        own = self._tools.tool_call_id[tools.start : tools.stop]
        by_id = dict(zip(own, tools, strict=True))
        by_name: dict[str, deque[int]] = {}
        unnamed = own.count("") if "" in by_id else 0
        if unnamed:
            del by_id[""]
            for tool in tools:
                if not self._tools.tool_call_id[tool]:
                    by_name.setdefault(self._tools.name[tool], deque()).append(tool)
        if len(by_id) + unnamed < len(own):
            raise NotPlainError
        return by_id, by_name

    def _begin(self, call: int, text: str) -> Lane:
        found = pieces(text)
        system = self._calls.system[call]
        if system and not any(piece.role == "system" for piece in found):
            found.insert(0, instructions(system))
        if not _OPENING.fullmatch("".join([piece.role[0] for piece in found])) or not any(one.parts for one in found):
            raise NotPlainError
        if any(piece.responses for piece in found):
            raise NotPlainError
        return Lane(call, text[: end_of(text)], found)

    def _continue(self, lane: Lane, call: int, text: str) -> None:
        last = lane.last
        if not (self._calls.is_next[call] if last == call - 1 else self._may_follow(last, call)):
            raise NotPlainError
        at = following(text, len(lane.text))
        if lane.spelled and text.startswith(lane.spelled, at):
            answer = lane.said.bare
            new = pieces("[" + text[following(text, at + len(lane.spelled)) :])
            if not new:
                raise NotPlainError  # a comma with nothing behind it
        else:
            found, *new = pieces("[" + text[at:])
            if found.role != "assistant" or found.responses or not _is_same(found, lane.said):
                raise NotPlainError
            answer = found.json
        if len(new) == 1 and new[0].role == "tool":
            lane.state = f"{lane.state},{answer},{new[0].json}"
            if not new[0].responses or len(new[0].responses) != len(lane.asked):
                raise NotPlainError  # a history with a gap: see ``turns``
            self._take_results(lane, new[0].responses)
        else:
            if any(piece.role != "user" and not (piece.role == "tool" and piece.responses) for piece in new):
                raise NotPlainError
            lane.state = ",".join([lane.state, answer, *[piece.json for piece in new]])
            responses = [response for piece in new for response in piece.responses]
            if len(responses) != len(lane.asked):
                raise NotPlainError
            self._take_results(lane, responses)
        self.steps.following[last] = call
        lane.text = text[: end_of(text)]
        lane.last = call

    def _may_follow(self, last: int, call: int) -> bool:
        column = self._calls
        return (
            column.end_ns[last] <= column.start_ns[call]
            and column.start_ns[last] < column.start_ns[call]
            and column.service_name[last] == column.service_name[call]
            and column.system[last] == column.system[call]
        )

    def _answer(self, lane: Lane, call: int, by_id: dict[str, int], by_name: dict[str, deque[int]]) -> None:
        column, steps = self._calls, self.steps
        text = column.output[call]
        found = pieces(text)
        if len(found) != 1:
            raise NotPlainError
        said = found[0]
        reason = column.finish_reason[call] or canonical_finish_reason(said.finish_reason)
        offered = self._offered[column.tools[call]]
        if (
            offered is None
            or said.role != "assistant"
            or reason in UNFINISHED
            or (column.is_streaming[call] and not reason)
        ):
            raise NotPlainError
        calls = said.calls
        lane.answer = ""
        if len(calls) < len(said.parts):
            lane.answer = said.text.strip()
            if said.responses:
                raise NotPlainError
        steps.answer[call] = lane.answer
        steps.first[call] = lane.first
        steps.state[call] = lane.state
        steps.action[call] = said.json
        steps.finish_reason[call] = reason
        lane.said = said
        lane.spelled = spelled(text, said.finish_reason)
        if calls:
            if offered and any(asked.name not in offered for asked in calls):
                raise NotPlainError
            steps.tool_call_count[call] = len(calls)
            if len(calls) > 1 and len({asked.id for asked in calls}) < len(calls):
                raise NotPlainError
            lane.asked = [(asked, self._span_of(asked, by_id, by_name)) for asked in calls]
        elif reason == TOOL_CALL or not lane.answer or is_call_as_text(lane.answer):
            raise NotPlainError
        else:
            lane.asked = []

    def _span_of(self, asked: Call, by_id: dict[str, int], by_name: dict[str, deque[int]]) -> int | None:
        found = by_id.pop(asked.id, None)
        if found is None and by_name:
            waiting = by_name.get(asked.name)
            return waiting.popleft() if waiting else None
        return found

    def _take_results(self, lane: Lane, responses: Sequence[Response]) -> None:
        """What the tools answered to the newest call of ``lane``, out of the next call's input and their spans."""
        contents: list[str] = []
        if lane.asked:
            tools = self._tools
            shown = {response.id: response.response for response in responses}
            if len(responses) == len(lane.asked) and not any(asked.id in shown for asked, _ in lane.asked):
                raise NotPlainError  # other ids: order tells, see ``steps``
            unnamed = [response.response for response in responses if not response.id][::-1]
            results: list[Result] = []
            for asked, tool in lane.asked:
                identity = asked.id
                content = shown.get(identity) if identity else None
                if content is None and unnamed:
                    content = unnamed.pop()
                duration_ns, span_id, is_sound = 0, "", False
                if tool is not None:
                    duration_ns, span_id, result = tools.duration_ns[tool], tools.span_id[tool], tools.result[tool]
                    content = result if content is None else content
                    is_sound = tools.tells_of_no_error[tool] and content == result
                if content is None or not (is_sound or error_in_text(content) is None):
                    raise NotPlainError
                contents.append(content)
                results.append(Result(identity, asked.name, "ok", "", content, duration_ns, span_id))
                self._answers.append((asked, content))
            self.steps.results[lane.last] = written(results)
        _look_for_circles(lane, contents)


def _start(begun: Sequence[Piece]) -> tuple[bytes, ...]:
    found: list[bytes] = []
    for piece in begun:
        found.append(digest_of(piece))
        if piece.role == "user":
            break
    return tuple(found)


def instructions(text: str) -> Piece:
    """The system prompt that was told beside the messages.

    Raises:
        NotPlainError: When it is unusual.
    """
    try:
        return piece_of(parse_system_instructions(text))
    except MalformedMessagesError:
        raise NotPlainError from None


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
    if one.bare == other.bare:
        return True
    return [call.id for call in one.calls] == [call.id for call in other.calls] and digest_of(one) == digest_of(other)


def _look_for_circles(lane: Lane, contents: list[str]) -> None:
    """Refuse a conversation in which ``attribution.loop`` may see one; it may see none where nothing comes again."""
    signs = lane.signs
    sign = (contents, lane.answer, lane.asked)
    got = "\0".join(contents) if contents else lane.answer
    if got in lane.seen:
        for rounds in ROUNDS:
            is_again = len(signs) >= rounds and _is_alike(signs[-rounds], sign)
            lane.runs[rounds - 1] = lane.runs[rounds - 1] + 1 if is_again else 0
            if lane.runs[rounds - 1] >= 2 * rounds:
                raise NotPlainError
    else:
        lane.seen.add(got)
        lane.runs = [0, 0, 0]
    signs.append(sign)


def _is_alike(one: _Sign, other: _Sign) -> bool:
    """Whether two steps did the same and got the same back."""
    if one[0] != other[0] or one[1] != other[1] or len(one[2]) != len(other[2]):
        return False
    pairs = zip(one[2], other[2], strict=True)
    return all(mine.name == its.name and mine.arguments == its.arguments for (mine, _), (its, _) in pairs)
