"""Calls that stand by themselves, because their history is not what was said, come out the same both ways."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .converters_world import World, answers, asks, loop, text, trace_id
from .test_plain import insist_on, plain_traces

LAWS = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])

ROLES = ("system", "user", "assistant", "tool")


def message(number: int, role: str, content: str) -> dict[str, Any]:
    return answers(f"c{number}", content) if role == "tool" else text(role, content)


def numbered(seen: list[dict[str, Any]], said: dict[str, Any] | None) -> dict[str, Any]:
    """The messages as attributes with numbers."""
    found: dict[str, Any] = {"gen_ai.request.type": "chat"}
    for prefix, messages in (("gen_ai.prompt", seen), ("gen_ai.completion", [said] if said else [])):
        for number, one in enumerate(messages):
            part = one["parts"][0]
            found[f"{prefix}.{number}.role"] = one["role"]
            found[f"{prefix}.{number}.content"] = part.get("content", part.get("response", ""))
            if part["type"] == "tool_call_response":
                found[f"{prefix}.{number}.tool_call_id"] = part["id"]
    return found


def add(world: World, seen: list[dict[str, Any]], said: dict[str, Any] | None, *, form: str, **where: Any) -> str:
    """A call in one of three forms: numbered attributes, JSON as Python writes it, JSON without a space."""
    more = where.pop("attributes", {})
    if form == "numbered":
        values = {"gen_ai.request.model": "m", "gen_ai.response.model": "m", **numbered(seen, said), **more}
        values["gen_ai.completion.0.finish_reason"] = "stop"
        return world.span("openai.chat", values, **where)
    if form == "compact":
        more = {**more, "gen_ai.input.messages": json.dumps(seen, separators=(",", ":"))}
    return world.call(seen, said, attributes=more, **where)


TWISTS = (
    *("continued", "awaited", "asked_elsewhere", "again", "three_alike", "instructions", "other_agent", "carried"),
    *("carried_whole", "redacted", "image", "empty", "call_as_text", "asks", "no_user", "no_answer", "unicode"),
    *("stream", "system_changed", "other_user", "cut", "broken", "escaped"),
)


def build(world: World, form: str, twists: dict[tuple[int, int], str], traces: int = 2, turns: int = 5) -> None:  # noqa: C901, PLR0912, PLR0915
    for number in range(traces):
        trace = trace_id(f"talk {number}")
        agent = world.span("agent", {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "a"}, trace=trace)
        seen: list[dict[str, Any]] = [text("system", "Be kind."), text("user", f"question {number}")]
        said, prompt = text("assistant", "nothing yet"), [1, 2, number]
        for turn in range(turns):
            twist = twists.get((number, turn), "")
            if turn:
                history = said if twist == "continued" else text("assistant", f"they said {turn}")
                if twist == "awaited":
                    history = text("assistant", f" answer 0 of {1 - number} ")
                seen = [*seen, history, message(turn, ROLES[turn % 4], f"and {turn}")]
            attributes: dict[str, Any] = {}
            answer = f"answer {turn} of {number}"
            if twist == "three_alike":
                answer = "the same"
            if twist in {"empty", "call_as_text"}:
                answer = "  " if twist == "empty" else '{"name": "search", "arguments": {}}'
            if twist == "unicode":
                seen = [*seen, text("user", 'naïve ☃ \u2028 \x7f \x01 \n\t 😀 \\ "')]  # fmt: skip
            said = asks(f"own {turn}") if twist == "asks" and form != "numbered" else text("assistant", answer)
            if twist == "redacted":
                seen = [*seen, text("user", "[REDACTED]")]
            if twist == "image":
                seen = [*seen, {"role": "user", "parts": [{"type": "blob", "content": "AA=="}]}]
            if twist == "other_user":
                seen = [text("system", "Be kind."), text("user", "another")]
            if twist == "system_changed":
                seen = [text("system", "Be brief."), *seen[1:]]
            if twist == "no_user":
                seen = [text("system", "Be kind.")]
            if twist == "cut":
                seen = seen[:2]
            if twist == "instructions":
                attributes["gen_ai.system_instructions"] = '[{"type": "text", "content": "Be brief."}]'
            if twist == "other_agent":
                attributes["gen_ai.agent.name"] = "b"
            if twist.startswith("carried"):
                attributes |= {"prompt_token_ids": prompt, "response_token_ids": [7, turn]}
            if twist == "carried_whole":
                attributes["logprobs"] = [-0.5, -0.25]
            if twist == "stream":
                attributes |= {"gen_ai.is_streaming": "true", "gen_ai.response.finish_reasons": ""}
            if twist == "broken" and form != "numbered":
                attributes["gen_ai.input.messages"] = json.dumps(seen)[:-1]
            if twist == "escaped" and form != "numbered":
                attributes["gen_ai.output.messages"] = (
                    '[{"role":"assistant","parts":[{"type":"text","content":"\\u0041"}]}]'
                )
            shown = None if twist == "no_answer" else said
            add(world, seen, shown, form=form, trace=trace, parent=agent, attributes=attributes)
            if twist == "again":
                add(world, seen, text("assistant", answer + " again"), form=form, trace=trace, parent=agent)
            if twist == "asked_elsewhere":
                elsewhere = trace_id("elsewhere")
                world.call([text("user", "who?")], asks(f"c{turn}"), trace=elsewhere)
                world.tool(f"c{turn}", "held", trace=elsewhere)
                world.call(
                    [text("user", "who?"), asks(f"c{turn}"), answers(f"c{turn}", "held")],
                    text("assistant", "they"),
                    trace=elsewhere,
                )
            world.tool(f"c{turn}", "found", trace=trace, parent=agent)
            prompt = [*prompt, 7, turn, 9]
        world.score(1.0, trace_id=trace)


FORMS = ("numbered", "json", "compact")


@pytest.mark.parametrize("form", FORMS)
def test_calls_with_a_history_of_somebody_elses_are_plain(form: str) -> None:
    world = World()
    build(world, form, {})
    loop(world, "beside", trace=trace_id("beside"))
    assert plain_traces(world) == {trace_id("talk 0"), trace_id("talk 1"), trace_id("beside")}
    converted = insist_on(world)
    talk = converted.transitions.filter(converted.transitions["trace_id"] == trace_id("talk 0"))
    assert json.loads(talk["state"][1])[:3] == json.loads(talk["state"][4])[:3]
    assert talk["next_state"].to_list()[-1] == ""


@pytest.mark.parametrize("number", range(len(TWISTS)), ids=TWISTS)
def test_every_twist_of_a_talk_comes_out_the_same_both_ways(number: int) -> None:
    twist, form = TWISTS[number], FORMS[number % len(FORMS)]
    for places in ([(0, 1), (0, 2), (0, 3)], [(1, 4)]):
        world = World()
        build(world, form, dict.fromkeys(places, twist))
        insist_on(world)


@LAWS
@given(
    st.sampled_from(FORMS),
    st.dictionaries(st.tuples(st.integers(0, 2), st.integers(0, 4)), st.sampled_from(TWISTS), max_size=5),
)
def test_any_talk_comes_out_the_same_both_ways(form: str, twists: dict[tuple[int, int], str]) -> None:
    world = World()
    build(world, form, twists, traces=3)
    insist_on(world)


def test_a_talk_that_goes_on_elsewhere_is_not_plain() -> None:
    world = World()
    build(world, "json", {(0, 3): "awaited"})
    assert plain_traces(world) == {trace_id("talk 1")}
    world = World()
    build(world, "json", {(0, 3): "asked_elsewhere"})
    assert trace_id("talk 0") not in plain_traces(world)
