"""Scripts told as spans, with what was done to each."""

from typing import NamedTuple

from .fault import Truth
from .script import Message, Script, Turn
from .spans import (
    SECOND_NS,
    START_NS,
    Place,
    call_span,
    identity,
    identity_at,
    one_tool_span,
    score,
    span,
    tool_span,
)


class Told(NamedTuple):
    """What was done to an episode."""

    kind: str
    wording: int
    truth: Truth
    culprit: str
    """The span to blame."""
    is_fatal: bool


class Story:
    """Rows of spans and scores, one trace an episode."""

    def __init__(self) -> None:
        self.told: dict[str, Told] = {}
        """By trace id."""
        self.spans: list[Message] = []
        self.scores: list[Message] = []

    def tell(self, script: Script, kind: str, truth: Truth, *, is_fatal: bool) -> None:
        """Write one episode as one trace."""
        trace = f"{len(self.told) + 1:032x}"
        root = f"{trace[-8:]}{'f' * 8}"
        seen = list(script.opening)
        now = START_NS
        for number, turn in enumerate(script.turns):
            self.spans.append(call_span(Place(trace, identity(trace, number), root, now), seen, turn, script.tools))
            now += SECOND_NS
            if turn.said is None:
                continue
            seen = [*seen, {**turn.said, "parts": [*turn.said["parts"], *(each.call for each in turn.beside)]}]
            now = self._tools(Place(trace, identity(trace, number, is_tool=True), root, now), number, turn)
            if turn.call and turn.answer is not None:
                answers = [(turn.call["id"], turn.answer), *((each.call["id"], each.answer) for each in turn.beside)]
                seen += [
                    {"role": "tool", "parts": [{"type": "tool_call_response", "id": own, "response": answer}]}
                    for own, answer in answers
                ]
            seen = [*seen, *turn.then]
        values = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "airline"}
        self.spans.append(span(Place(trace, root, "", START_NS, now - START_NS), "invoke_agent", values, script.raised))
        if script.reward is not None:
            self.scores.append(score(trace, script.reward))
        self.told[trace] = Told(kind, script.wording, truth, _culprit(trace, root, truth), is_fatal)

    def _tools(self, place: Place, number: int, turn: Turn) -> int:
        """The tools of a turn, and what lies within them; the time after them."""
        if not turn.call or (turn.answer is None and not turn.tool_raised):
            return place.start_ns
        end = self._sub_agent(place, number, turn)
        self.spans.append(tool_span(place._replace(duration_ns=end - place.start_ns - SECOND_NS // 2), turn))
        for count, each in enumerate(turn.beside):
            own = place._replace(own=identity_at(place.trace, number, "beside", count))
            self.spans.append(one_tool_span(own, each.call, each.answer, each.tool_raised))
        return end

    def _sub_agent(self, place: Place, number: int, turn: Turn) -> int:
        if not turn.inner:
            return place.start_ns + SECOND_NS
        agent = identity_at(place.trace, number, "inner agent")
        seen: list[Message] = [{"role": "user", "parts": [{"type": "text", "content": "Look the fares up."}]}]
        now = place.start_ns
        for count, inner in enumerate(turn.inner):
            call = Place(place.trace, identity_at(place.trace, number, "inner call", count), agent, now)
            self.spans.append(call_span(call, seen, inner, ()))
            now += SECOND_NS
            if inner.said is not None:
                seen = [*seen, inner.said]
            if inner.call and inner.answer is not None:
                tool = call._replace(own=identity_at(place.trace, number, "inner tool", count), start_ns=now)
                self.spans.append(tool_span(tool, inner))
                now += SECOND_NS
                answer = {"type": "tool_call_response", "id": inner.call["id"], "response": inner.answer}
                seen = [*seen, {"role": "tool", "parts": [answer]}]
        values = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "specialist"}
        where = Place(place.trace, agent, place.own, place.start_ns, now - place.start_ns)
        self.spans.append(span(where, "invoke_agent", values, turn.inner[-1].raised))
        return now + SECOND_NS


def _culprit(trace: str, root: str, truth: Truth) -> str:
    if truth.where == "program":
        return root
    if truth.where in {"call", "tool"}:
        return identity(trace, truth.turn, is_tool=truth.where == "tool")
    return identity_at(trace, truth.turn, truth.where)
