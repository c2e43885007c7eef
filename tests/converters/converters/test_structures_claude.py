"""The Claude Agent SDK, which runs Claude Code and tells of its answers block by block, through its tracers.

Two tools at once, one that raises, two questions in one session, and a request that is refused: there Claude Code
answers itself, as the model ``<synthetic>``, with the words of the error.
"""

import json
from typing import Any

import pytest

from .converters_world import OPENING, World, answers, asks, text, trace_id
from .structures import Seen, insist_on_structure
from .test_dialects import steps_of
from .test_recordings import convert_recording

TOOL = "mcp__weather__get_weather"
FAILURES = (f"tool_error {TOOL}", "invalid_request -")
MCP = {"no_model_call": 17}
"""The MCP client's own spans, which stand in traces of their own."""

Message = dict[str, Any]


def one_at_a_time(agent: str, opening: str) -> tuple[tuple[str, ...], ...]:
    """The tool that raises, both questions of the session, of which Claude Code keeps the history, and the refusal."""

    def turn(result: str) -> tuple[str, str]:
        return f"{agent} {opening} {TOOL} span:{result} -", f"{agent} {opening}at - - -"

    return turn("error"), turn("ok"), turn("ok"), (f"{agent} {opening} - - request_failed",)


CITIES = "mcp__cities__get_"

SEEN = [
    Seen(
        "claude_code",
        (*[("- - - - missing_content",) * 2] * 2, ("- - - - missing_content",) * 5, ("- - - - request_failed",)),
        ("invalid_request -",),
        {"no_model_call": 4},
    ),
    Seen(
        "claude_code_bodies",
        (
            (
                f"- sus {CITIES}weather span:error -",
                f"- susats {CITIES}weather span:ok -",
                f"- susatsats {CITIES}weather+{CITIES}population span:ok+span:ok -",
                "- susatsatsats - - -",
            ),
            (
                "- sus Agent+Agent span:ok+span:ok -",
                *[f"researcher sus {CITIES}weather span:ok -"] * 2,
                *["researcher susats - - -"] * 2,
                "- susats - - -",
            ),
        ),
        (f"invalid_arguments {CITIES}weather",),
        {"no_model_call": 2},
    ),
    Seen(
        "claude_agent_sdk_langsmith",
        ((f"- u {TOOL}+{TOOL} span:ok+span:ok -", "- uatt - - -"), *one_at_a_time("-", "u")),
        FAILURES,
        MCP,
    ),
    Seen(
        "claude_agent_sdk_logfire",
        (
            (
                f"- su {TOOL} span:ok missing_content",
                "- suat - - missing_content",
                "- suatt - - missing_content",
            ),
            *one_at_a_time("-", "su"),
        ),
        FAILURES,
        MCP,
    ),
    Seen(
        "claude_agent_sdk_loongsuite",
        (
            (f"claude-agent u {TOOL} span:ok missing_content", "claude-agent uaatt - - -"),
            *one_at_a_time("claude-agent", "u"),
        ),
        FAILURES,
        MCP,
    ),
]


@pytest.mark.parametrize("seen", SEEN, ids=lambda seen: seen.name)
def test_the_structure_is_the_programs(seen: Seen) -> None:
    insist_on_structure(seen)


@pytest.mark.parametrize("seen", SEEN[2:], ids=lambda seen: seen.name)
def test_what_was_asked_and_answered_is_what_the_program_did(seen: Seen) -> None:
    _, converted = convert_recording(seen.name)
    asked: list[str] = []
    for row in converted.transitions.iter_rows(named=True):
        calls = [part for part in json.loads(row["action"])["parts"] if part["type"] == "tool_call"]
        for call, result in zip(calls, json.loads(row["tool_results"]), strict=True):
            city = call["arguments"]["city"]
            asked.append(city)
            assert result["content"] == ("weather backend down" if city == "Nowhere" else f"57F in {city}")
    both = ["Paris", "Rome"] if seen.name.endswith("langsmith") else ["Paris"]
    assert sorted(asked) == sorted([*both, "Nowhere", "Oslo", "Lima"])


def test_claude_codes_own_spans_tell_how_its_requests_ended() -> None:
    """Each session begins with a request for its title, which is no step."""
    _, converted = convert_recording("claude_code")
    steps = steps_of(converted, 0)
    assert [step["finish_reason"] for step in steps] == ["tool_call", "stop"]
    assert [step["action"]["parts"][0]["content"] for step in steps] == [
        "Let me look.",
        "It is rainy in Paris and Rome.",
    ]
    assert {(step["input_tokens"], step["output_tokens"]) for step in steps} == {(21, 7)}
    assert converted.episodes["session_id"].n_unique() == converted.episodes.height == 4


def test_claude_codes_log_records_tell_what_its_requests_held() -> None:
    _, converted = convert_recording("claude_code_bodies")
    first, second, *_ = steps_of(converted, 0)
    assert (first["response_id"], first["action"]["parts"][0]["arguments"]) == (
        "msg_6b733625a4eb47ddf648bb46",
        {"city": "Atlantis"},
    )
    assert [tool["name"] for tool in first["tools"]] == [f"{CITIES}population", f"{CITIES}weather"]
    assert json.loads(first["next_state"]) == second["state"]


def test_langsmith_tells_the_tokens_of_each_call() -> None:
    _, converted = convert_recording("claude_agent_sdk_langsmith")
    counts = converted.transitions.select("input_tokens", "output_tokens").unique().sort("input_tokens").rows()
    assert counts == [(0, 0), (21, 7)]


FIRST, SECOND = asks("c1", content="Let me look."), asks("c2")
RESULTS = (answers("c1", "57F"), answers("c2", "61F"))


def reasons(*calls: tuple[list[Message], Message | None], **common: Any) -> list[str]:
    """Why the steps of one trace, each with what was sent and said, may not be trained on."""
    world = World()
    for seen, said in calls:
        world.call(seen, said, trace=trace_id("t"), **common)
    return [step["untrainable_reason"] for step in steps_of(world.convert(), 0)]


def test_an_answer_is_a_part_where_its_turn_made_more_calls() -> None:
    done = text("assistant", "done")
    assert reasons(([*OPENING], FIRST), ([*OPENING, FIRST, SECOND, *RESULTS], done)) == ["missing_content", ""]
    mixed = [*OPENING, FIRST, RESULTS[0], RESULTS[1]]
    assert reasons(([*OPENING], FIRST), (mixed, done)) == ["missing_content", "missing_content"]
    # What was asked for after the answer is another call's.
    assert reasons(([*OPENING], FIRST), ([*OPENING, FIRST, RESULTS[0], SECOND, RESULTS[1]], done)) == ["", ""]
    # An answer that comes late is to a call that was made before.
    late = [*OPENING, FIRST, text("user", "Well?")]
    assert reasons((late, SECOND), ([*late, SECOND, RESULTS[1], RESULTS[0]], done))[0] == ""


@pytest.mark.parametrize(
    ("words", "model", "tokens", "expected"),
    [
        ("API Error: 529 Overloaded", "<synthetic>", 0, "request_failed"),
        ("Prompt is too long", "<synthetic>", 0, "request_failed"),
        ("API Error: 529 Overloaded", "claude", 0, "request_failed"),
        ("API Error: 529 means that the server is busy.", "claude", 7, ""),
        ("It is rainy.", "claude", 0, ""),
    ],
)
def test_words_that_no_model_said_are_no_action(words: str, model: str, tokens: int, expected: str) -> None:
    counts = {"gen_ai.usage.input_tokens": tokens, "gen_ai.usage.output_tokens": tokens}
    assert reasons(([*OPENING], text("assistant", words)), model=model, attributes=counts) == [expected]


def test_the_words_of_the_error_say_why_the_request_failed() -> None:
    world = World()
    world.call(OPENING, text("assistant", "API Error: 429 Too many requests"), trace=trace_id("t"), model="<synthetic>")
    assert world.convert().failures["error_class"].to_list() == ["rate_limit"]
