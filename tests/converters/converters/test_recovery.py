"""What an episode got over: nothing without a good end, and nothing in a failed one but by the same thing's success."""

from typing import Any, NamedTuple

from .converters_world import OPENING, World, answers, asks, text

Message = dict[str, Any]


class Turn(NamedTuple):
    """A model call, what came back for its tool calls, and what the user said then."""

    said: Message | None
    results: tuple[str, ...] = ()
    user: str = ""
    how: dict[str, Any] = {}  # noqa: RUF012 - never changed


def tools(*names: str) -> Message:
    calls = [asks(f"{name}-{number}", name)["parts"][0] for number, name in enumerate(names)]
    return {"role": "assistant", "parts": calls}


def says(content: str = "It rains.", **told: Any) -> Turn:
    return Turn(text("assistant", content), **told)


DOWN, FINE = "Error: HTTP 503", "rain"
FAILS, WORKS = Turn(tools("search"), (DOWN,)), Turn(tools("search"), (FINE,))
UNKNOWN = Turn(tools("serach"), ("Error: no such tool",))
REFUSED = Turn(tools("search"), ("Error: not enough seats",))
DEFINED = [{"type": "function", "name": name, "parameters": {"type": "object"}} for name in ("search", "lookup")]
BROKEN_OFF = says("It ra", how={"finish": "error"})

GOT_OVER: dict[str, tuple[tuple[Turn, ...], float | None, list[tuple[str, bool]]]] = {
    "went on to an answer": ((FAILS, says()), None, [("server_error", True)]),
    "the last request failed": (
        (FAILS, Turn(None, how={"error": "Error code: 500"})),
        None,
        [("server_error", False), ("server_error", False)],
    ),
    "the last request failed after some words": (
        (FAILS, says("It ra", how={"exception": ("openai.InternalServerError", "Error code: 500")})),
        None,
        [("server_error", False), ("server_error", False)],
    ),
    "nothing of the last answer is known": ((FAILS, Turn(None)), None, [("server_error", False)]),
    "the last answer broke off": ((FAILS, BROKEN_OFF), None, [("server_error", False), ("incomplete_stream", False)]),
    "the same tool worked": ((FAILS, WORKS, says()), 0.0, [("server_error", True), ("wrong_answer", False)]),
    "another tool worked": ((FAILS, Turn(tools("lookup"), (FINE,)), says()), 0.0, [("server_error", False)]),
    "the tool had worked before": ((WORKS, FAILS, says()), 0.0, [("server_error", False)]),
    "any tool worked after one that does not exist": (
        (UNKNOWN, Turn(tools("lookup"), (FINE,)), says()),
        0.0,
        [("unknown_tool", True), ("wrong_answer", False)],
    ),
    "one of two worked after one that does not exist": (
        (UNKNOWN, Turn(tools("search", "lookup"), (FINE, DOWN)), says()),
        0.0,
        [("unknown_tool", False), ("server_error", False)],
    ),
    "nothing but words after one that does not exist": ((UNKNOWN, says()), 0.0, [("unknown_tool", False)]),
    "the user was told and said what to do": (
        (REFUSED, says("It is full.", user="Then leave it."), says("As you like.")),
        0.0,
        [("refused_action", True), ("wrong_answer", False)],
    ),
    "the user was told and said nothing": (
        (REFUSED, says("It is full.", user=" "), says("Well.")),
        0.0,
        [("refused_action", False)],
    ),
    "the user spoke after another call": (
        (REFUSED, Turn(tools("lookup"), (FINE,), "Then leave it."), says("As you like.")),
        0.0,
        [("refused_action", False)],
    ),
    "a request that was asked again": (
        (Turn(None, how={"error": "Error code: 429"}), says()),
        0.0,
        [("rate_limit", True), ("wrong_answer", False)],
    ),
    "a request of which the next one broke off": (
        (Turn(None, how={"error": "Error code: 429"}), BROKEN_OFF),
        0.0,
        [("rate_limit", False), ("incomplete_stream", False)],
    ),
}


TRACES = {name: f"{number + 1:032x}" for number, name in enumerate(GOT_OVER)}


def play(world: World, name: str, turns: tuple[Turn, ...], reward: float | None) -> None:
    seen = [text("system", name), *OPENING]
    for turn in turns:
        world.call(seen, turn.said, trace=TRACES[name], tools=DEFINED, **turn.how)
        seen += [turn.said] if turn.said is not None else []
        calls = [part for part in (turn.said or {"parts": []})["parts"] if part["type"] == "tool_call"]
        seen += [answers(call["id"], result) for call, result in zip(calls, turn.results, strict=True)]
        seen += [text("user", turn.user)] if turn.user else []
    if reward is not None:
        world.score(reward, trace_id=TRACES[name])


def test_what_an_episode_got_over() -> None:
    world = World()
    for name, (turns, reward, _) in GOT_OVER.items():
        play(world, name, turns, reward)
    converted = world.convert()
    assert converted.episodes.height == len(GOT_OVER)
    found: dict[str, list[tuple[str, bool]]] = {trace: [] for trace in TRACES.values()}
    rows = converted.failures.sort("step", "occurred_at").select("trace_id", "error_class", "is_recovered").iter_rows()
    for trace, error_class, is_recovered in rows:
        found[trace].append((error_class, is_recovered))
    assert {name: found[TRACES[name]] for name in GOT_OVER} == {name: told for name, (_, _, told) in GOT_OVER.items()}
