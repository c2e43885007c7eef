"""What only an episode as a whole shows: loops, crashes, endings, and the chain from root cause to symptom."""

import json
import math
from typing import Any

import pytest

from spanloop.converters import Converted, Options
from spanloop.converters.attribution import (
    RULES,
    AskedJudge,
    EndingRule,
    ErrorClass,
    Finding,
    LlmJudge,
    Rules,
    ToolCallContext,
    ToolCallRule,
)
from spanloop.converters.attribution.failure_dedup import is_same_error
from spanloop.converters.enums import FaultOwner
from spanloop.converters.steps import Episode

from .converters_world import OPENING, World, answers, asks, text, trace_id

TRACE = trace_id("t")
Json = dict[str, Any]


def told(
    *turns: tuple[Json, str | None], world: World | None = None, reward: float | None = None, **root: Any
) -> World:
    """One episode below a root span: each turn an action and, for a tool call, its answer."""
    world = world or World()
    seen = list(OPENING)
    for said, answered in turns:
        world.call(seen, said, trace=TRACE, parent="aaaaaaaaaaaaaaaa")
        seen.append(said)
        if answered is not None:
            (call,) = [part for part in said["parts"] if part["type"] == "tool_call"]
            seen.append(answers(call["id"], answered))
    values = {"gen_ai.operation.name": "invoke_agent"}
    world.span("invoke_agent", values, trace=TRACE, span_id="aaaaaaaaaaaaaaaa", start_s=0, duration_s=99, **root)
    if reward is not None:
        world.score(reward, trace_id=TRACE)
    return world


def says(content: str) -> tuple[Json, None]:
    return text("assistant", content), None


def failures(converted: Converted) -> list[tuple[Any, ...]]:
    return converted.failures.select("error_class", "fault_owner", "step", "is_recovered").rows()


def chain(converted: Converted, number: int = -1) -> list[Any]:
    links = json.loads(converted.failures["evidence"].to_list()[number])["chain"]
    return [link.get("error_class", link["what"]) for link in links]


def decided(converted: Converted) -> tuple[str, str]:
    row: tuple[str, str] = converted.episodes.select("error_class", "fault_owner").row(0)
    return row


# --- one rule each


@pytest.mark.parametrize("length", [1, 2, 3])
def test_actions_that_bring_the_same_again_and_again_are_a_loop(length: int) -> None:
    one_round = [(asks(f"c{n}", arguments={"query": f"q{n}"}), f"r{n}") for n in range(length)]
    converted = told(says("First."), *one_round * 3, says("I give up."), reward=0.0).convert()
    assert failures(converted) == [("loop", "policy", 1 + length, False)]
    evidence = json.loads(converted.failures.item(0, "evidence"))
    assert (evidence["first_step"], evidence["steps_a_round"], evidence["rounds"]) == (1, length, 3)


def test_what_changes_or_fails_or_stops_after_two_rounds_is_no_loop() -> None:
    polling = [(asks("c", arguments={"query": "state"}), f"at {n} %") for n in range(5)]
    assert told(*polling, says("Done.")).convert().failures.is_empty()
    twice = [(asks("c", arguments={"query": "x"}), "r")] * 2
    assert told(*twice, says("Done.")).convert().failures.is_empty()
    failing = [(asks("c", arguments={"query": "x"}), "Error: ConnectionError: refused")] * 4
    found = {row[0] for row in failures(told(*failing, says("Sorry.")).convert())}
    assert found == {"connection_error"}


@pytest.mark.parametrize(
    ("exception", "error_class", "owner"),
    [
        (("TypeError", "can only add str"), "harness_crash", "harness"),
        (("KeyboardInterrupt", ""), "cancelled", "user"),
        (("MaxTurnsExceeded", "Max turns (10) exceeded"), "step_limit", "policy"),
        (("OutputParserException", "Could not parse LLM output"), "malformed_output", "policy"),
        (("httpx.ConnectError", "connection refused"), "connection_error", "environment"),
    ],
)
def test_what_a_program_raises(exception: tuple[str, str], error_class: str, owner: str) -> None:
    converted = told((asks("c1"), "42"), exception=exception).convert()
    assert failures(converted) == [(error_class, owner, 0, False)]
    culprit = converted.transitions.item(0, "span_id") if owner == "policy" else "a" * 16
    assert converted.failures.item(0, "span_id") == culprit
    assert converted.episodes.item(0, "outcome") == "failure"


def test_an_exception_on_its_way_up_is_counted_where_it_was_raised() -> None:
    world = World()
    world.call(OPENING, None, trace=TRACE, parent="b" * 16, exception=("APITimeoutError", "Request timed out."))
    for own, parent in (("b" * 16, "c" * 16), ("c" * 16, "")):
        values = {"gen_ai.operation.name": "invoke_agent"}
        raised = ("APITimeoutError", "Request timed out.")
        world.span("run", values, trace=TRACE, span_id=own, parent=parent, exception=raised)
    assert failures(world.convert()) == [("timeout", "environment", 0, False)]


def test_an_exception_is_one_failure_whatever_words_it_is_wrapped_in() -> None:
    world = World()
    at_call = "Error getting response: {'error': 'Error code: 429 - Rate limit reached'}"
    at_agent = "Error in agent run: {'error': 'Error code: 429 - Rate limit reached'}"
    call = world.call(OPENING, None, trace=TRACE, parent="b" * 16, error=at_call)
    world.span("turn", {}, trace=TRACE, span_id="b" * 16, parent="c" * 16)
    world.span("agent", {"gen_ai.operation.name": "invoke_agent"}, trace=TRACE, span_id="c" * 16, error=at_agent)
    converted = world.convert()
    assert failures(converted) == [("rate_limit", "environment", 0, False)]
    assert converted.failures.item(0, "span_id") == call


@pytest.mark.parametrize("goes_on", [False, True])
def test_a_call_that_says_nothing_of_its_error_speaks_in_the_words_of_the_span_that_it_passed(*, goes_on: bool) -> None:
    world = World()
    call = world.call(OPENING, None, trace=TRACE, parent="b" * 16, attributes={"error.type": "error"})
    world.span("step", {}, trace=TRACE, span_id="b" * 16, parent="c" * 16)
    if goes_on:
        world.call(OPENING, text("assistant", "Hello."), trace=TRACE, parent="c" * 16)
    values = {"gen_ai.operation.name": "invoke_agent"}
    raised = ("Error", "Rate limit reached")
    world.span(
        "agent", values, trace=TRACE, span_id="c" * 16, start_s=0, duration_s=world.clock_s + 9, exception=raised
    )
    rows = world.convert().failures.select("error_class", "fault_owner", "span_id").rows()
    if goes_on:  # then the agent failed by something else
        assert {row[0] for row in rows} == {"model_call_error", "rate_limit"}
    else:
        assert rows == [("rate_limit", "environment", call)]


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("ValueError: no such seat", "no such seat", True),
        ("run failed (no such seat)", "tool failed: no such seat.", True),
        ("run failed: no such seat", "run failed: no such flight", False),
        ("the run was given up after three attempts", "HTTP 503: service unavailable", False),
        ("a b", "c b", False),
    ],
)
def test_two_errors_are_one_when_the_same_words_end_them(one: str, other: str, *, is_same: bool) -> None:
    assert is_same_error(one, other) is is_same_error(other, one) is is_same


def behind_a_tool(inner: str, outer: str, *, is_cycle: bool = False) -> World:
    """A tool that is an agent of its own, whose model call fails; then the tool is asked again and answers."""
    world, seen, first = World(), list(OPENING), asks("c1")
    world.call(seen, first, trace=TRACE)
    around = {"parent": "d" * 16} if is_cycle else {}
    world.tool("c1", "", trace=TRACE, span_id="b" * 16, exception=("ToolError", outer), **around)
    world.span(
        "agent", {"gen_ai.operation.name": "invoke_agent"}, trace=TRACE, span_id="d" * 16, parent="b" * 16, error=inner
    )
    said = {"gen_ai.agent.name": "inner"}
    world.call(OPENING[:1], None, trace=TRACE, parent="d" * 16, exception=("APIError", inner), attributes=said)
    again = asks("c2")
    seen += [first, answers("c1", f"Error: {outer}")]
    world.call(seen, again, trace=TRACE)
    world.tool("c2", "12 dollars", trace=TRACE)
    seen += [again, answers("c2", "12 dollars")]
    world.call(seen, text("assistant", "It costs 12 dollars."), trace=TRACE)
    world.score(0.0, trace_id=TRACE)
    return world


@pytest.mark.parametrize("is_cycle", [False, True], ids=["tree", "cycle"])
def test_a_tool_that_hands_on_what_failed_behind_it_is_no_second_failure(*, is_cycle: bool) -> None:
    inner = "Error code: 429 - Rate limit reached"
    converted = behind_a_tool(inner, f"specialist: {inner}", is_cycle=is_cycle).convert()
    rows = converted.failures.select("error_class", "agent_name", "is_recovered").rows()
    assert ("rate_limit", "inner", True) in rows  # the tool worked later, and with it the agent behind it
    assert [row[0] for row in rows].count("rate_limit") == 1


def test_a_tool_that_fails_in_its_own_way_after_something_behind_it_did_is_a_second_one() -> None:
    rows = failures(behind_a_tool("Error code: 429 - Rate limit reached", "cannot add None and 1").convert())
    assert {row[0] for row in rows} >= {"rate_limit", "tool_error"}


def test_output_that_the_program_cannot_read_is_one_failure() -> None:
    as_text = '<tool_call>{"name": "search", "arguments": {}}</tool_call>'
    raised = ("OutputParserException", "Could not parse LLM output")
    assert failures(told(says(as_text), exception=raised).convert()) == [("malformed_output", "policy", 0, False)]


@pytest.mark.parametrize("works_later", [False, True])
def test_a_tool_that_no_action_asked_for_is_got_over_when_it_works_later(*, works_later: bool) -> None:
    world = World()
    first = text("assistant", "I shall look it up.")
    world.call(OPENING, first, trace=TRACE)
    world.tool("", "", trace=TRACE, name="lookup", exception=("OSError", "no disk"))
    if works_later:
        world.tool("", "12", trace=TRACE, name="lookup")
    world.call([*OPENING, first, text("user", "Go on.")], text("assistant", "I do not know."), trace=TRACE)
    world.score(0.0, trace_id=TRACE)
    assert failures(world.convert())[0] == ("tool_error", "tool", 0, works_later)


def test_a_crash_of_its_own_above_a_failure_that_was_got_over_is_seen() -> None:
    converted = told((asks("c1"), "Error: boom"), says("fine"), exception=("KeyError", "'state'")).convert()
    assert failures(converted) == [("tool_error", "unknown", 0, True), ("harness_crash", "harness", 1, False)]


def test_what_fails_below_a_call_is_the_calls_own_affair() -> None:
    world = World()
    world.call(OPENING, text("assistant", "x"), trace=TRACE, span_id="b" * 16)
    for own, parent in (("c" * 16, "b" * 16), ("d" * 16, "c" * 16)):
        world.span("POST", {}, trace=TRACE, span_id=own, parent=parent, exception=("ReadTimeout", "timed out"))
    assert world.convert().failures.is_empty()


def test_a_tool_that_no_action_asked_for_is_a_tool_all_the_same() -> None:
    world = told(says("Hello."))
    world.tool("", "", trace=TRACE, parent="a" * 16, error="no disk", exception=("OSError", "no disk"))
    assert [row[:2] for row in failures(world.convert())] == [("tool_error", "tool")]


@pytest.mark.parametrize(
    ("said", "error_class"),
    [
        ('<tool_call>{"name": "search", "arguments": {}}</tool_call>', "malformed_output"),
        ('```json\n{"name": "search", "arguments": {"query": "x"}}\n```', "malformed_output"),
        ("  ", "malformed_output"),
        ("I'm sorry, but I can't help with that.", "refusal"),
        ("I\u2019m unable to complete this task.", "refusal"),
        ("I won't be able to help with that.", "refusal"),
        ("I must decline this request.", "refusal"),
        ("As an AI, I cannot do this.", "refusal"),
        ("I am sorry for the delay. I can't find a cheaper flight, so it is HAT001.", "wrong_answer"),
        ("Your booking cannot be changed under the fare rules.", "wrong_answer"),
        ("Sorry for the delay! Is there anything else I can help with?", "wrong_answer"),
        ('The format is {"name": "x"}.', "wrong_answer"),
    ],
)
def test_answers_of_a_failed_episode(said: str, error_class: str) -> None:
    converted = told(says(said), reward=0.0).convert()
    assert failures(converted) == [(error_class, "policy", 0, False)]


def test_refusing_is_no_failure_where_nobody_says_so() -> None:
    assert told(says("I'm sorry, but I can't help with that."), reward=1.0).convert().failures.is_empty()


def test_an_episode_that_stops_in_action_ran_out_of_turns_only_when_it_failed() -> None:
    assert failures(told((asks("c1"), None), reward=0.0).convert()) == [("step_limit", "policy", 0, False)]
    assert told((asks("c1"), None)).convert().failures.is_empty()


@pytest.mark.parametrize(
    ("name", "answer", "error_class"),
    [
        ("final_answer", "12 dollars", "wrong_answer"),
        ("final_answer", None, "wrong_answer"),
        ("finish", "ok", "wrong_answer"),
        ("transfer_to_human_agents", "Transfer successful", "wrong_answer"),
        ("transfer_to_human_agents", None, "step_limit"),
        ("submit_form", "ok", "step_limit"),
        ("search", "12", "step_limit"),
    ],
)
def test_a_tool_that_ends_things_is_no_end_of_turns(name: str, answer: str | None, error_class: str) -> None:
    world, first, last = World(), asks("c0"), asks("c1", name)
    world.call(OPENING, first, trace=TRACE, tools=())
    world.call([*OPENING, first, answers("c0", "7")], last, trace=TRACE, tools=())
    if answer is not None:
        world.tool("c1", answer, trace=TRACE, name=name)
    world.score(0.0, trace_id=TRACE)
    assert failures(world.convert()) == [(error_class, "policy", 1, False)]


def test_a_lost_answer_is_the_harnesss() -> None:
    world = told((asks("c1"), None))
    world.call([*OPENING, asks("c1")], text("assistant", "x"), trace=TRACE, parent="a" * 16)
    assert failures(world.convert()) == [("missing_result", "harness", 0, True)]


def test_a_lost_answer_is_not_found_in_an_older_call_of_the_same_id() -> None:
    world = told((asks("c1"), "42"), (asks("c1", arguments={"query": "y"}), None))
    seen = [*OPENING, asks("c1"), answers("c1", "42"), asks("c1", arguments={"query": "y"})]
    world.call(seen, text("assistant", "x"), trace=TRACE, parent="a" * 16)
    assert failures(world.convert()) == [("missing_result", "harness", 1, True)]


def test_an_identifier_that_only_the_user_gave_is_the_users_mistake() -> None:
    def at(given: str, content: str) -> list[tuple[Any, ...]]:
        world, seen = World(), [OPENING[0], text("user", given)]
        said = asks("c1", arguments={"query": "order_77123"})
        world.call(seen, said, trace=TRACE)
        world.call([*seen, said, answers("c1", content)], text("assistant", "x"), trace=TRACE)
        return [row[:2] for row in failures(world.convert())]

    assert at("Where is order_77123?", "Error: order_77123 not found") == [("invalid_user_input", "user")]
    assert at("Where is my order?", "Error: order_77123 not found") == [("invalid_arguments", "policy")]
    assert at("Where is order_77123?", "Error: no paper") == [("tool_error", "unknown")]


@pytest.mark.parametrize(
    ("content", "error_class", "owner"),
    [
        ("Error: not enough seats", "refused_action", "policy"),
        ("Error: ValueError: 5 exceeds 3", "tool_error", "tool"),
        ("Error: reservation has already been cancelled", "refused_action", "policy"),
    ],
)
def test_a_tool_that_says_no_in_words_was_asked_the_wrong_thing(content: str, error_class: str, owner: str) -> None:
    assert failures(told((asks("c1"), content), says("x")).convert())[0][:2] == (error_class, owner)


def test_code_that_the_policy_wrote_and_that_does_not_run_is_its_own() -> None:
    code = asks("c1", "run_python", {"code": "print(x)"})
    world = World()
    seen = [*OPENING, code, answers("c1", "Traceback (most recent call last):\nNameError: name 'x'")]
    world.call(OPENING, code, trace=TRACE, tools=[])
    world.call(seen, text("assistant", "x"), trace=TRACE, tools=[])
    assert failures(world.convert()) == [("invalid_code", "policy", 0, True)]


def test_a_swallowed_exception_is_judged_by_what_the_tools_span_says() -> None:
    world = World()
    world.call(OPENING, asks("c1"), trace=TRACE)
    tool = world.tool("c1", "", trace=TRACE, exception=("HTTPError", "503 Server Error: Service Unavailable"))
    world.call([*OPENING, asks("c1"), answers("c1", "Try later.")], text("assistant", "x"), trace=TRACE)
    converted = world.convert()
    assert failures(converted) == [("server_error", "environment", 0, True)]
    assert converted.failures.item(0, "span_id") == tool


def test_a_wrong_answer_is_laid_at_the_step_that_first_said_it() -> None:
    world = World()
    seen = list(OPENING)
    for agent, said in (("solver", "So the answer is 42."), ("checker", "I agree."), ("writer", "Final answer: 42")):
        message = text("assistant", said)
        world.call(seen, message, trace=TRACE, attributes={"gen_ai.agent.name": agent})
        seen.append(message)
    world.score(0.0, trace_id=TRACE)
    row = world.convert().failures.row(0, named=True)
    assert (row["error_class"], row["step"], row["agent_name"]) == ("wrong_answer", 0, "solver")
    assert json.loads(row["evidence"])["value"] == "42"


# --- recovery, roots and chains


def test_a_request_that_was_tried_again_did_not_decide_a_failed_episode() -> None:
    world = World()
    world.call(OPENING, None, trace=TRACE, exception=("RateLimitError", "Error code: 429"))
    world.call(OPENING, text("assistant", "It rains."), trace=TRACE)
    world.score(0.0, trace_id=TRACE)
    converted = world.convert()
    assert failures(converted) == [("rate_limit", "environment", 0, True), ("wrong_answer", "policy", 1, False)]
    assert chain(converted, 0) == ["rate_limit", "recovered"]
    assert converted.transitions.sort("step")["is_trainable"].to_list() == [False, True]


def test_a_crash_right_after_a_bad_call_is_its_symptom() -> None:
    broken = asks("c1", arguments="{broken")
    converted = told((asks("c0"), "42"), (broken, None), exception=("JSONDecodeError", "Expecting value")).convert()
    assert decided(converted) == ("invalid_arguments", "policy")
    crashed = told((asks("c0"), "42"), (broken, None), exception=("TypeError", "no dict")).convert()
    assert decided(crashed) == ("invalid_arguments", "policy")
    assert chain(crashed) == ["invalid_arguments", "harness_crash", "the episode stopped after a tool call"]


def test_a_crash_after_things_had_worked_again_is_a_cause_of_its_own() -> None:
    converted = told((asks("c0", "invent"), "Error: unknown tool"), (asks("c1"), "42"), exception=("TypeError", "x"))
    assert decided(converted.convert()) == ("harness_crash", "harness")


def test_retries_of_one_tool_are_one_chain_with_the_first_at_its_root() -> None:
    again = [(asks(f"c{n}"), "Error: TimeoutError: timed out") for n in range(3)]
    converted = told((asks("c"), "42"), *again, says("Sorry."), reward=0.0).convert()
    assert chain(converted) == ["timeout"] * 3 + ["the episode ended with an answer; reward 0"]
    roots = [json.loads(evidence)["chain"][0]["step"] for evidence in converted.failures["evidence"].to_list()]
    assert roots == [1, 1, 1]


def test_a_long_chain_shows_its_beginning_and_its_end() -> None:
    again = [(asks(f"c{n}"), "Error: TimeoutError: timed out") for n in range(30)]
    converted = told(*again, reward=0.0).convert()
    links = json.loads(converted.failures.item(7, "evidence"))["chain"]
    assert [link.get("step") for link in links] == [0, 1, 2, 3, 4, None, 24, 25, 26, 27, 28, 29]
    assert links[5]["what"] == "19 more"


def test_the_last_thing_that_was_not_mended_decides() -> None:
    first, then = (asks("c1", "invent"), "Error: unknown tool"), (asks("c2"), "Error: HTTP 503")
    converted = told(first, says("Let me try."), then, says("Sorry."), reward=0.0).convert()
    assert decided(converted) == ("server_error", "environment")
    assert set(converted.transitions["untrainable_reason"].to_list()) == {"environment_fault"}


# --- rules of one's own, and judges


def test_a_rule_of_ones_own_may_name_a_class_of_its_own() -> None:
    class Danger(ToolCallRule):
        def find(self, context: ToolCallContext) -> Finding | None:
            if context.result and "rm -rf" in context.call.arguments:
                return Finding("danger", FaultOwner.POLICY, 1.0, "deletes files", {})
            return None

    rules = RULES._replace(tool_calls=(Danger(), *RULES.tool_calls))
    world = told((asks("c1", arguments={"query": "rm -rf /"}), "done"), says("x"))
    found = world.convert(Options(rules=rules)).failures.row(0, named=True)
    assert (found["error_class"], found["rule"]) == ("danger", "danger")
    assert told(says("x"), reward=0.0).convert(Options(rules=Rules((), (), (), ()))).failures.is_empty()


def with_judge(judge: AskedJudge) -> Options:
    return Options(rules=RULES._replace(endings=(LlmJudge(judge=judge), *RULES.endings)))


def test_a_judge_is_asked_once_and_only_where_nothing_else_explains_a_failure() -> None:
    asked: list[str] = []

    def ask(prompt: str) -> str:
        asked.append(prompt)
        return (
            '{"step": 0, "error_class": "wrong_query", "owner": "policy", "confidence": 0.8, "reason": "asked for y"}'
        )

    options = with_judge(AskedJudge(ask, "judge-1"))
    told(says("fine"), reward=1.0).convert(options)
    told((asks("c1"), "Error: HTTP 503"), says("Sorry."), reward=0.0).convert(options)
    assert not asked
    world = told((asks("c1"), "42"), says("Rain."), reward=0.0)
    for _ in range(2):
        row = world.convert(options).failures.row(0, named=True)
        assert (row["error_class"], row["step"], row["rule"], row["message"]) == (
            "wrong_query",
            0,
            "llm_judge",
            "asked for y",
        )
        assert math.isclose(row["confidence"], 0.8, rel_tol=1e-6)
    assert len(asked) == 1
    assert "search answered: 42" in asked[0]
    assert all(error_class in asked[0] for error_class in ErrorClass)


@pytest.mark.parametrize(
    "answer",
    [
        "I cannot say.",
        '{"step": 9, "error_class": "x", "owner": "policy"}',
        '{"step": 0, "error_class": "x", "owner": "nobody"}',
        '{"step": "0", "error_class": "x", "owner": "policy"}',
        "{broken}",
        "}{",
    ],
)
def test_a_judge_that_cannot_be_understood_leaves_it_to_the_rules(answer: str) -> None:
    cache: dict[str, str] = {}
    converted = told(says("Rain."), reward=0.0).convert(with_judge(AskedJudge(lambda _: answer, "j", cache)))
    assert failures(converted) == [("wrong_answer", "policy", 0, False)]


def test_ending_rules_are_asked_in_order() -> None:
    class Silent(EndingRule):
        def find(self, episode: Episode, reward: float | None) -> None:
            del episode, reward

    options = Options(rules=RULES._replace(endings=(Silent(),)))
    assert told(says("Rain."), reward=0.0).convert(options).failures.is_empty()
