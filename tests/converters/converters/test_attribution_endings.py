"""What is said of failed episodes in which no call failed: circles, poor answers, invented data, teams."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from spanloop.converters import Converted

from .converters_world import OPENING, World, answers, asks, text, trace_id

TRACE = trace_id("t")
Json = dict[str, Any]
Turn = tuple[str, Json, str | None]
"""Agent, action, and what its tool answered."""


def told(*turns: Turn, reward: float | None = 0.0, tools: Sequence[Json] = ()) -> Converted:
    world, seen = World(), list(OPENING)
    for agent, said, answered in turns:
        attributes = {"gen_ai.agent.name": agent, "gen_ai.conversation.id": TRACE}
        world.call(seen, said, trace=TRACE, tools=tools, attributes=attributes)
        seen.append(said)
        if answered is not None:
            seen.append(answers(said["parts"][-1]["id"], answered))
    if reward is not None:
        world.score(reward, trace_id=TRACE)
    return world.convert()


def says(agent: str, content: str) -> Turn:
    return agent, text("assistant", content), None


def found(converted: Converted) -> list[tuple[Any, ...]]:
    return converted.failures.select("error_class", "fault_owner", "step", "is_recovered").rows()


LONG = "Here is what I worked out, with every step of it written down at some length. "


def test_of_a_team_the_first_step_of_who_wrote_most_is_named_as_a_guess() -> None:
    converted = told(
        says("planner", "Solver, please find out what it costs, and checker, look at it."),
        says("solver", LONG * 3),
        says("checker", "I have looked at it and agree with every word."),
        says("solver", "That settles it, and we may go home."),
        says("checker", "TERMINATE"),
    )
    assert found(converted) == [("wrong_answer", "policy", 1, False)]
    row = converted.failures.row(0, named=True)
    assert (row["agent_name"], row["rule"]) == ("solver", "team_answer")
    assert row["confidence"] < 0.5
    assert json.loads(row["evidence"])["chosen"] == "wrote most"


def test_of_a_team_whose_answer_can_be_traced_it_is_the_agent_that_first_said_it() -> None:
    converted = told(
        says("planner", LONG * 3),
        says("solver", "I begin with the fares of May."),
        says("solver", "The final answer is 417."),
        says("checker", LONG + "The final answer is 417."),
    )
    assert found(converted) == [("wrong_answer", "policy", 1, False)]
    assert json.loads(converted.failures.item(0, "evidence"))["value"] == "417"


def test_one_agent_alone_is_no_team() -> None:
    converted = told(says("solver", LONG), says("solver", "That is all that there is to say."))
    assert converted.failures.select("step", "rule").row(0) == (1, "wrong_answer")


@pytest.mark.parametrize(("second", "is_recovered"), [("checker", True), ("coder", False)])
def test_a_team_gets_over_code_that_did_not_run(second: str, *, is_recovered: bool) -> None:
    code = asks("c1", "run_python", {"code": "print(x)"})
    converted = told(
        ("coder", code, "Traceback (most recent call last):\nNameError: name 'x'"),
        says(second, "Then I work it out by hand, and it is a lot."),
        says("coder", "Fine, we take that."),
    )
    assert (found(converted)[0][0], found(converted)[0][3]) == ("invalid_code", is_recovered)


@pytest.mark.parametrize(
    "said",
    [
        "The site does not answer, so let us simulate the fares with three sample values.",
        "I will use placeholder data for the missing month.",
        "Let's assume the following fares: 120, 90 and 310 dollars.",
        "I\u2019ll make up some plausible fares for now.",
        "Let me just pretend that it costs 200 dollars.",
    ],
)
def test_data_of_the_policys_own_making(said: str) -> None:
    turns = says("a", "I begin by looking the fares up."), says("a", said), says("b", "It comes to 520 dollars.")
    assert found(told(*turns)) == [("invented_data", "policy", 1, False)]
    assert found(told(*turns, reward=1.0)) == []


def test_no_failure_before_it_excuses_invented_data() -> None:
    down, makes_up = asking(1, "x", "Error: HTTP 503"), says("a", "I take sample data instead.")
    converted = told(down, makes_up, says("a", "It is 12 dollars."))
    assert found(converted)[-1] == ("invented_data", "policy", 1, False)
    assert converted.episodes.select("error_class", "fault_owner").row(0) == ("invented_data", "policy")
    later = told(makes_up, down, says("a", "I give up."))
    assert later.episodes.item(0, "error_class") == "server_error"


@pytest.mark.parametrize(
    "said",
    [
        "I assume that you want the cheapest fare.",
        "The simulation is over.",
        "The data are in the table.",
        "We should not make up fares; I'll make up for the lost time.",
    ],
)
def test_what_is_no_invented_data(said: str) -> None:
    assert found(told(says("a", said)))[0][0] == "wrong_answer"


def asking(number: int, query: str, answer: str, name: str = "search", content: str = "") -> Turn:
    return "a", asks(f"c{number}", name, {"query": query}, content), answer


def test_the_same_call_under_other_words_is_a_loop() -> None:
    again = [asking(n, "x", "r", content=f"Once more, {n}.") for n in range(3)]
    assert found(told(says("a", "First."), *again, says("a", "I give up."))) == [("loop", "policy", 2, False)]
    assert found(told(*again, says("a", "Done."), reward=1.0)) == []
    assert found(told(*again[:2], says("a", "I give up.")))[0][0] == "wrong_answer"


@pytest.mark.parametrize(
    ("name", "answer", "is_loop"),
    [("search", "[]", True), ("search", "the same page", True), ("write_file", "ok", False), ("pay", "[]", True)],
)
def test_a_question_put_in_other_words_again_and_again_is_a_loop(name: str, answer: str, *, is_loop: bool) -> None:
    again = [asking(n, f"weather paris {n}", answer, name) for n in range(5)]
    assert (found(told(*again, says("a", "I give up.")))[0][:3] == ("loop", "policy", 1)) is is_loop


def test_a_loop_is_the_cause_of_turns_that_ran_out() -> None:
    world, seen = World(), list(OPENING)
    for number in range(5):
        said = asks(f"c{number}", arguments={"query": f"paris {number}"})
        world.call(seen, said, trace=TRACE, parent="a" * 16)
        seen += [said, answers(f"c{number}", "[]")]
    values = {"gen_ai.operation.name": "invoke_agent"}
    raised = ("GraphRecursionError", "Recursion limit of 25 reached")
    world.span("run", values, trace=TRACE, span_id="a" * 16, start_s=0, duration_s=99, exception=raised)
    world.score(0.0, trace_id=TRACE)
    converted = world.convert()
    assert converted.episodes.select("error_class", "fault_owner").row(0) == ("loop", "policy")
    links = json.loads(converted.failures["evidence"].to_list()[-1])["chain"]
    assert [link.get("error_class") for link in links[:2]] == ["loop", "step_limit"]


CUT = '{"fares": [{"to": "Rome", "dollars": 12'


@pytest.mark.parametrize(
    ("name", "answer", "is_poor"),
    [
        ("get_fares", "", True),
        ("get_fares", "null", True),
        ("get_fares", "[]", False),
        ("get_fares", '{"result": null}', True),
        ("get_fares", "(no output)", True),
        ("get_fares", '{"results": []}', False),
        ("get_fares", '{"fares": [{"to": "Rome"}', True),
        ("get_fares", '{"fares": 12.', True),
        ("get_fares", '{"fares": [{"to": "Rome"}, ... (120 more characters)', True),
        ("get_fares", '{"fares": [1]} and {"seats": [2]}', False),
        ("note_down", "", False),
        ("get_fares", CUT, True),
        ("get_fares", CUT + "... [truncated]", True),
        ("get_fares", '{"fares": tru', True),
        ("get_fares", "[INFO] 12 fares were read", False),
        ("get_fares", '{"fares": 12, nonsense', False),
        ("note_down", CUT, True),
    ],
)
def test_answers_that_hold_nothing_or_break_off(name: str, answer: str, *, is_poor: bool) -> None:
    converted = told(asking(1, "x", answer, name), says("a", "All fares are fine."))
    assert (found(converted)[0][:3] == ("incomplete_result", "tool", 0)) is is_poor


@pytest.mark.parametrize(
    ("name", "said", "is_poor"),
    [
        ("book_seat", "Unfortunately that did not work.", True),
        ("book_seat", "There seems to be a problem on our side.", True),
        ("book_seat", "I\u2019m sorry, the seat couldn\u2019t be confirmed: it was not able to respond.", True),
        ("book_seat", "Your seat is booked. Sorry for the wait.", False),
        ("think", "Unfortunately that did not work.", False),
    ],
)
def test_nothing_from_a_tool_that_does_something_counts_where_the_policy_misses_it(
    name: str, said: str, *, is_poor: bool
) -> None:
    converted = told(asking(1, "x", "null", name), says("a", said))
    assert (found(converted)[0][:3] == ("incomplete_result", "tool", 0)) is is_poor
    assert not is_poor or converted.failures.item(0, "confidence") < 0.4


def test_a_poor_answer_decides_after_an_error_that_was_never_mended() -> None:
    turns = asking(1, "x", "Error: not enough seats", "book_seat"), asking(2, "y", CUT, "get_fares")
    assert found(told(*turns, says("a", "So be it.")))[-1] == ("incomplete_result", "tool", 1, False)


@pytest.mark.parametrize("content", ["Error: not enough seats on HAT001", "Error: HTTP 503"])
def test_an_action_that_cannot_be_done_is_got_over_once_the_user_was_told(content: str) -> None:
    world, asked = World(), asks("c1")
    seen = [*OPENING, asked, answers("c1", content)]
    told_so, done = text("assistant", "That flight is full."), text("assistant", "Then I leave it as it is.")
    world.call(OPENING, asked, trace=TRACE)
    world.call(seen, told_so, trace=TRACE)
    world.call([*seen, told_so, text("user", "Then leave it.")], done, trace=TRACE)
    world.score(0.0, trace_id=TRACE)
    expected = [("refused_action", "policy", 0, True), ("wrong_answer", "policy", 2, False)]
    assert found(world.convert()) == (expected if "seats" in content else [("server_error", "environment", 0, False)])


def test_a_poor_answer_that_was_asked_for_again_decided_nothing() -> None:
    turns = asking(1, "x", CUT, "get_fares"), asking(2, "x", '{"fares": [12]}', "get_fares")
    assert found(told(*turns, says("a", "Fine.")))[0][0] == "wrong_answer"


def test_a_refusal_after_things_had_worked_again_decides() -> None:
    no = says("a", "I'm sorry, but I can't help with that.")
    refused, fine = asking(1, "x", "Error: not enough seats"), asking(2, "y", "12 dollars", "fares")
    assert found(told(refused, fine, no))[-1] == ("refusal", "policy", 2, False)
    down = asking(1, "x", "Error: HTTP 503")
    assert found(told(down, no)) == [("server_error", "environment", 0, False)]


def test_a_stream_that_an_error_ended_is_incomplete_and_one_that_somebody_stopped_is_cancelled() -> None:
    def of(raised: tuple[str, str], said: Json | None) -> tuple[Any, ...]:
        world = World()
        world.call(OPENING, said, trace=TRACE, exception=raised, attributes={"gen_ai.is_streaming": "true"})
        return found(world.convert())[0]

    begun = text("assistant", "One mo")
    assert of(("RemoteProtocolError", "peer closed connection"), begun)[:2] == ("incomplete_stream", "environment")
    assert of(("RemoteProtocolError", "peer closed connection"), None)[:2] == ("connection_error", "environment")
    assert of(("CancelledError", ""), begun)[:2] == ("cancelled", "user")


BOOKED = asking(1, "x", "12 seats", "get_seats"), asking(2, "y", '{"seat": "A"}', "book_seat")


@pytest.mark.parametrize(
    ("last", "step", "chosen"),
    [
        ("Your seat has been booked successfully.", 1, "the first thing done"),
        ("I\u2019ve booked the seat by the window.", 1, "the first thing done"),
        ("You're welcome! Feel free to reach out again.", 1, "the first thing done"),
        ("All seats are by the window.", 2, None),
        ("The fare is 520 dollars.", 2, None),
    ],
)
def test_a_report_of_a_deed_and_a_farewell_are_no_mistake_and_the_deed_may_be(
    last: str, step: int, chosen: str | None
) -> None:
    converted = told(*BOOKED, says("a", last))
    assert found(converted) == [("wrong_answer", "policy", step, False)]
    assert json.loads(converted.failures.item(0, "evidence")).get("chosen") == chosen
    assert (converted.failures.item(0, "confidence") < 0.45) is (chosen is not None)


def test_nothing_done_leaves_what_was_said_before_the_farewell() -> None:
    refused = asking(1, "x", "Error: HTTP 503", "book_seat"), asking(2, "x", "12 seats", "get_seats")
    talk = says("a", "There is no seat by the window."), says("a", "Take care, and have a great day!")
    assert found(told(refused[1], *talk)) == [("wrong_answer", "policy", 1, False)]
    assert found(told(*refused, says("a", "A seat has been found.")))[0][0] == "server_error"


@pytest.mark.parametrize(
    ("said", "error_class"),
    [
        ("I refuse to do this.", "refusal"),
        ("I'm not comfortable helping with this.", "refusal"),
        ("That's not something I can help with.", "refusal"),
        ("I refused the fee for you, as it was not due.", "wrong_answer"),
        ("You are not allowed to change this fare.", "wrong_answer"),
    ],
)
def test_other_words_of_a_refusal(said: str, error_class: str) -> None:
    assert found(told(says("a", said)))[0][0] == error_class


@pytest.mark.parametrize(
    ("raised", "error_class", "owner"),
    [
        (("UsageLimitExceeded", "The next request would exceed the request_limit of 50"), "step_limit", "policy"),
        (("StepLimit", "Maximum number of steps reached"), "step_limit", "policy"),
        (("UserAbort", "User cancelled the operation"), "cancelled", "user"),
        (("SessionClosed", "user closed the chat window"), "cancelled", "user"),
        (("Stopped", "Received SIGTERM, shutting down"), "cancelled", "user"),
        (("StateError", "the user closed 3 accounts"), "harness_crash", "harness"),
    ],
)
def test_other_words_of_a_program_that_gave_up(raised: tuple[str, str], error_class: str, owner: str) -> None:
    world, said = World(), asks("c1")
    world.call(OPENING, said, trace=TRACE, parent="a" * 16)
    world.tool("c1", "12 dollars", trace=TRACE, parent="a" * 16)
    values = {"gen_ai.operation.name": "invoke_agent"}
    world.span("invoke_agent", values, trace=TRACE, span_id="a" * 16, start_s=0.0, duration_s=9.0, exception=raised)
    assert found(world.convert())[0][:2] == (error_class, owner)
