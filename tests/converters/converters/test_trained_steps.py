"""Which steps of an episode are trained on: what another place asks again, what decided it, what a history has lost."""

from collections.abc import Callable
from typing import Any

from spanloop.converters import Converted

from .converters_world import OPENING, World, answers, asks, text

Message = dict[str, Any]
GOOD, BAD = asks("good"), asks("bad", name="serach")
DONE = text("assistant", "It rains.")
AFTER = [*OPENING, GOOD, answers("good", "rain")]
USAGE: dict[str, Any] = {"attributes": {"gen_ai.usage.input_tokens": 20}}
CUT: dict[str, Any] = {"finish": "length"}
TOOL = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search", "gen_ai.tool.call.id": "good"}


class Episode:
    """Calls of one episode by name, whatever traces they are in."""

    def __init__(self, world: World, name: str, number: int) -> None:
        self._world, self.name, self._trace = world, name, number << 8

    def call(self, seen: list[Message], said: Message | None, *, place: int = 0, **how: Any) -> str:
        attributes = {"spanloop.episode.id": self.name, **how.pop("attributes", {})}
        return self._world.call(seen, said, trace=self.trace(place), attributes=attributes, **how)

    def span(self, name: str, attributes: dict[str, Any], **how: Any) -> str:
        values = {"spanloop.episode.id": self.name, **attributes}
        return self._world.span(name, values, trace=self.trace(0), **how)

    def trace(self, place: int) -> str:
        return f"{self._trace + place + 1:032x}"

    def score(self, value: float) -> None:
        self._world.score(value, episode_key=self.name)


def retry(episode: Episode, first: dict[str, Any], second: dict[str, Any]) -> None:
    episode.call([*OPENING], BAD, **first)
    episode.call([*OPENING], GOOD, **second)
    episode.call(AFTER, DONE, **second)


def below(episode: Episode, *, is_one: bool) -> None:
    parents = [episode.span(name, {}) for name in ("one", "other")]
    retry(episode, {"parent": parents[0]}, {"parent": parents[not is_one]})


def between_questions(episode: Episode, last: Message) -> None:
    """A cut answer, asked again; then something else, so that the second is not what the episode ended with."""
    episode.call([*OPENING], text("assistant", "It r"), **CUT)
    episode.call([*OPENING], DONE)
    episode.call([text("user", "What else?")], last)


def twice(episode: Episode, first: dict[str, Any], second: dict[str, Any]) -> None:
    episode.call([*OPENING], text("assistant", "It r"), **first)
    episode.call([*OPENING], DONE, **second)


def answered_in_vain(episode: Episode, *, is_answered: bool) -> None:
    """The last answer asks for a tool; only what came back shows that it was used."""
    episode.call([*OPENING], text("assistant", "It r"), **CUT)
    episode.call([*OPENING], GOOD)
    if is_answered:
        episode.span("tool", {**TOOL, "gen_ai.tool.call.result": "rain"})


RETRIES: dict[str, tuple[Callable[[Episode], None], list[str]]] = {
    "roots of two traces": (lambda e: retry(e, {"place": 1}, {"place": 2}), ["abandoned_attempt", "", ""]),
    "below one span": (lambda e: below(e, is_one=True), ["abandoned_attempt", "", ""]),
    "below two spans": (lambda e: below(e, is_one=False), ["", "", ""]),
    "a root and one below a span": (lambda e: retry(e, {}, {"parent": e.span("one", {})}), ["", "", ""]),
    "one below a span and a root": (lambda e: retry(e, {"parent": e.span("one", {})}, {}), ["", "", ""]),
    "the last of two, after one cut off": (lambda e: twice(e, CUT, {}), ["abandoned_attempt", ""]),
    "not the last, after one cut off": (lambda e: between_questions(e, text("assistant", "Wind.")), ["", "", ""]),
    "two cut off": (lambda e: twice(e, CUT, CUT), ["", ""]),
    "the last asks in vain": (lambda e: answered_in_vain(e, is_answered=False), ["", ""]),
    "the last asks and is answered": (lambda e: answered_in_vain(e, is_answered=True), ["abandoned_attempt", ""]),
    "an answer in words, asked again with as many tokens": (lambda e: twice(e, USAGE, USAGE), ["", ""]),
}


def repeated_response(episode: Episode, *, response: str = "resp_2", place: int = 0, is_new: bool = False) -> None:
    """A call of a Responses API behind one whose tool has answered."""
    episode.call([*OPENING], GOOD, response_id="resp_1")
    episode.span("tool", {**TOOL, "gen_ai.tool.call.result": "rain"})
    seen = [*OPENING, text("user", "And?")] if is_new else [*OPENING]
    episode.call(seen, DONE, response_id=response, place=place)


def lost_calls(episode: Episode, said: Message, *, has_calls: bool) -> None:
    """A call ends for tools that nobody recorded; the history of the next may tell of them."""
    episode.call([*OPENING], said, finish="tool_call")
    told = [said, GOOD, answers("good", "rain")] if has_calls else [said, text("user", "rain")]
    episode.call([*OPENING, *told], DONE)


SAID = text("assistant", "I look it up.")
HISTORIES: dict[str, tuple[Callable[[Episode], None], list[str]]] = {
    "an input without what the tools answered": (repeated_response, ["", "missing_content"]),
    "the same through another API": (lambda e: repeated_response(e, response="chatcmpl-2"), ["", ""]),
    "the same in another trace": (lambda e: repeated_response(e, place=1), ["", ""]),
    "a new question": (lambda e: repeated_response(e, is_new=True), ["", ""]),
    "words that ended for tools": (lambda e: lost_calls(e, SAID, has_calls=False), ["missing_content"] * 2),
    "words to which the history adds the calls": (
        lambda e: lost_calls(e, SAID, has_calls=True),
        ["missing_content", ""],
    ),
}


def failing(owner: str) -> Callable[[Episode], None]:
    """An episode that failed by a tool's words, or by a program that gave up."""

    def made(episode: Episode) -> None:
        episode.call([*OPENING], GOOD)
        episode.call([*OPENING, GOOD, answers("good", TOLD.get(owner, "rain"))], DONE)
        if owner == "harness":
            episode.span("run", {}, exception=("KeyError", "'state'"))
        episode.score(float(owner == "none"))

    return made


TOLD = {
    "environment": "Error: HTTP 503",
    "unknown": "Error: it went wrong",
    "policy": "Error: not enough seats",
    "tool": "Traceback (most recent call last):\nZeroDivisionError: division by zero",
}
OWNERS = {
    "environment": "environment_fault",
    "harness": "environment_fault",
    "unknown": "unattributed_failure",
    "policy": "",
    "tool": "",
    "none": "",
}


def reasons(cases: dict[str, Callable[[Episode], None]]) -> dict[str, list[str]]:
    """Why each step of each episode is not trained on, in the order of steps; all are in one conversion."""
    world = World()
    for number, (name, make) in enumerate(cases.items()):
        make(Episode(world, name, number))
    return by_episode(world.convert())


def by_episode(converted: Converted) -> dict[str, list[str]]:
    keys = converted.episodes.select("episode_id", "episode_key")
    rows = converted.transitions.join(keys, on="episode_id").sort("episode_id", "step")
    found: dict[str, list[str]] = {}
    for key, reason in rows.select("episode_key", "untrainable_reason").iter_rows():
        found.setdefault(key, []).append(reason)
    return found


def test_an_answer_is_thrown_away_where_one_place_asks_the_same_again_and_uses_that() -> None:
    found = reasons({name: make for name, (make, _) in RETRIES.items()})
    assert found == {name: expected for name, (_, expected) in RETRIES.items()}


def test_a_history_has_lost_what_the_call_before_it_evidently_did() -> None:
    found = reasons({name: make for name, (make, _) in HISTORIES.items()})
    assert found == {name: expected for name, (_, expected) in HISTORIES.items()}


def test_what_others_did_wrong_masks_an_episode_and_what_the_policy_or_a_tool_did_does_not() -> None:
    found = reasons({owner: failing(owner) for owner in OWNERS})
    assert found == {owner: [reason] * 2 for owner, reason in OWNERS.items()}
