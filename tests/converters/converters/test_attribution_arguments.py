"""Whose fault a tool's error is: the policy's arguments, the tool, or what surrounds it."""

import json
from typing import Any

import pytest

from spanloop.converters import Converted, Options
from spanloop.converters.rewards import AgentReward, NamedReward

from .converters_world import World, answers, asks, text, trace_id

TRACE = trace_id("t")
SEEN = [text("system", "You book."), text("user", "I am mia_berg_2041, change booking XK41.")]
BOOK = {
    "name": "book",
    "parameters": {
        "type": "object",
        "properties": {"user_id": {"type": "string"}, "date": {"type": "string"}, "seats": {"type": "integer"}},
    },
}
GIVEN = {"user_id": "mia_berg_2041", "date": "2041"}


def world_of(*calls: tuple[dict[str, Any], str], reward: float | None = None) -> World:
    """Calls of ``book`` with their answers, and a last word."""
    world, seen = World(), list(SEEN)
    for number, (arguments, content) in enumerate(calls):
        said = asks(f"c{number}", "book", arguments)
        world.call(seen, said, trace=TRACE, tools=[BOOK])
        seen += [said, answers(f"c{number}", content)]
    world.call(seen, text("assistant", "That was it."), trace=TRACE, tools=[BOOK])
    if reward is not None:
        world.score(reward, trace_id=TRACE)
    return world


def first(converted: Converted) -> tuple[str, str, str]:
    row = converted.failures.row(0, named=True)
    return row["error_class"], row["fault_owner"], row["rule"]


@pytest.mark.parametrize(
    "content",
    [
        "Error: invalid parameter",
        "Error: unknown field in request",
        "Error: missing required parameter: seats",
        "Error: parameter is missing",
        "Error: HTTP 400 Bad Request",
        "Error: 422 Unprocessable Entity",
        "Error: wrong type",
        "ValueError: date must be in the format YYYY-MM-DD",
        "Error: date is required",
        '{"error": "seats is not valid"}',
        "Error: user_id cannot be empty",
    ],
)
def test_what_speaks_of_arguments_is_the_policys(content: str) -> None:
    assert first(world_of((GIVEN, content)).convert()) == ("invalid_arguments", "policy", "refused_arguments")


@pytest.mark.parametrize(
    ("content", "error_class", "owner"),
    [
        ("Error: 503 for url https://x/book?date=1: expected a date", "server_error", "environment"),
        ("Error: request timed out, date must be asked for again", "timeout", "environment"),
        ("Error: connect ECONNREFUSED 127.0.0.1:5432", "connection_error", "environment"),
        ("Error: [Errno -3] Temporary failure in name resolution", "connection_error", "environment"),
        ("Error: HTTPSConnectionPool(host='x'): Max retries exceeded with url: /y", "connection_error", "environment"),
        ("ThrottlingException: rate exceeded, request was throttled", "rate_limit", "environment"),
        ("Error: You exceeded your current quota", "rate_limit", "environment"),
        ("Error: the service is temporarily unavailable", "server_error", "environment"),
        ("PermissionError: [Errno 13] Permission denied: '/srv/x'", "permission_denied", "environment"),
        ("Error: Client error '403 Forbidden' for url 'https://x/y'", "permission_denied", "environment"),
        ("Error: CancelledError", "cancelled", "user"),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'state.json'", "tool_error", "tool"),
        ("KeyError: 'currency'", "tool_error", "tool"),
        ("Error: database is locked", "tool_error", "unknown"),
        ("Error: user not found", "tool_error", "unknown"),
    ],
)
def test_what_does_not_is_not(content: str, error_class: str, owner: str) -> None:
    assert first(world_of((GIVEN, content)).convert())[:2] == (error_class, owner)


@pytest.mark.parametrize("content", ["Error: user not found", "UserNotFoundError: no such user", "Error: unknown user"])
def test_a_sort_of_thing_that_is_missing_is_the_argument_of_that_name(content: str) -> None:
    made_up = GIVEN | {"user_id": "tom_voss_9"}
    assert first(world_of((made_up, content)).convert()) == ("invalid_arguments", "policy", "hallucinated_arguments")
    assert first(world_of((GIVEN, content)).convert())[1] in {"tool", "unknown"}
    assert first(world_of((GIVEN | {"seats": 7}, content)).convert())[1] in {"tool", "unknown"}


def test_a_value_that_an_error_repeats_is_still_made_up() -> None:
    call = GIVEN | {"user_id": "tom_voss_9"}, "Error: user tom_voss_9 not found"
    failures = world_of(call, call).convert().failures.sort("step")
    assert failures["rule"].to_list() == ["hallucinated_arguments"] * 2
    assert failures["fault_owner"].to_list() == ["policy"] * 2


def test_a_value_that_an_answer_gave_beside_the_arguments_was_given() -> None:
    calls = (GIVEN, "Known users: tom_voss_9"), (GIVEN | {"user_id": "tom_voss_9"}, "Error: user tom_voss_9 not found")
    assert first(world_of(*calls).convert())[1:] == ("unknown", "given_value")


def test_arguments_that_were_put_right_had_been_wrong() -> None:
    wrong, right = GIVEN | {"date": "booking"}, GIVEN
    converted = world_of((wrong, "Error: no matching record"), (right, "booked")).convert()
    assert first(converted) == ("invalid_arguments", "policy", "corrected_arguments")
    row = converted.failures.row(0, named=True)
    assert row["is_recovered"]
    assert json.loads(json.loads(row["evidence"])["worked_later"]) == right


@pytest.mark.parametrize(
    ("content", "later"),
    [
        ("Error: no matching record", (GIVEN, "booked")),
        ("Error: no matching record", (GIVEN | {"seats": 2}, "Error: no matching record")),
        ("Error: database is locked", (GIVEN | {"seats": 2}, "booked")),
    ],
    ids=["the same worked", "nothing worked", "the tool's own state"],
)
def test_what_was_not_put_right_is_nobodys(content: str, later: tuple[dict[str, Any], str]) -> None:
    assert first(world_of((GIVEN, content), later).convert())[1] == "unknown"


def test_a_wrong_value_is_no_error_of_form() -> None:
    def penalty(arguments: dict[str, Any], content: str) -> float:
        options = Options(reward_functions=(NamedReward("agent", AgentReward()),))
        converted = world_of((arguments, content), (GIVEN, "booked")).convert(options)
        breakdown: dict[str, float] = converted.episodes.item(0, "reward_breakdown")
        return breakdown.get("agent/format_error", 0.0)

    assert penalty(GIVEN | {"user_id": "tom_voss_9"}, "Error: user not found") == 0
    assert penalty(GIVEN | {"seats": "many"}, "Error: bad") < 0


def test_arguments_that_the_token_limit_cut_are_no_mistake_of_their_own() -> None:
    world = World()
    world.call(SEEN, asks("c1", "book", '{"user_id": "mia_'), trace=TRACE, tools=[BOOK], finish="length")
    assert [row["error_class"] for row in world.convert().failures.to_dicts()] == ["truncated_output"]


def test_code_that_raises_is_never_a_question_of_parameters() -> None:
    raised = "Traceback (most recent call last):\n  x\narxiv.HTTPError: HTTP 400, invalid parameter"
    world = World()
    said = asks("c1", "run_python", {"code": "fetch('placeholder')"})
    world.call(SEEN, said, trace=TRACE, tools=[])
    world.call([*SEEN, said, answers("c1", raised)], text("assistant", "x"), trace=TRACE, tools=[])
    assert first(world.convert())[:2] == ("invalid_code", "policy")


@pytest.mark.parametrize(
    "content",
    [
        "reserve is not a valid tool, try one of [book].",
        "Tool reserve not found in agent travel",
        "Unknown tool: reserve",
    ],
)
def test_a_tool_that_does_not_exist_is_told_by_the_answer_where_no_definitions_were_recorded(content: str) -> None:
    world = World()
    said = asks("c1", "reserve", GIVEN)
    world.call(SEEN, said, trace=TRACE, tools=[])
    world.call([*SEEN, said, answers("c1", content)], text("assistant", "x"), trace=TRACE, tools=[])
    assert first(world.convert())[:2] == ("unknown_tool", "policy")
