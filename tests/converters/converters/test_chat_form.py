"""The chat form refuses by name what an API would refuse; a pair of preferences needs more than the margin."""

import json
from typing import Any

import pytest

from spanloop.converters.exports.chat import NotChatError, chat, tool_definitions
from spanloop.messages import parse_messages

from .converters_world import Message, World, answers, asks, text
from .test_exports import attempt, lines, transitions

ASK = text("user", "q")
PAIR: Message = {"role": "assistant", "parts": [asks("a")["parts"][0], asks("b")["parts"][0]]}
TWINS: Message = {"role": "assistant", "parts": [asks("a")["parts"][0], asks("a", "fetch")["parts"][0]]}
BOTH: Message = {"role": "user", "parts": [answers("a", "x")["parts"][0], {"type": "text", "content": "And?"}]}


def chatted(*messages: Message) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(json.dumps(chat(parse_messages(json.dumps(messages)))))
    return found


@pytest.mark.parametrize(
    ("reason", "messages"),
    [
        ("unanswered_tool_call", (ASK, asks("a"), text("assistant", "So."))),
        ("unanswered_tool_call", (ASK, PAIR, answers("a", "x"), text("user", "And?"))),
        ("unanswered_tool_call", (ASK, answers("a", "x"))),
        ("unanswered_tool_call", (ASK, asks("a"), answers("b", "x"))),
        ("unanswered_tool_call", (ASK, asks("a"), answers("a", "x"), answers("a", "x"))),
        ("unanswered_tool_call", (ASK, TWINS)),
        ("unknown_role", (ASK, text("critic", "No."))),
        ("invalid_arguments", (ASK, asks("a", arguments="{not json"))),
        ("invalid_tool_name", (ASK, asks("a", "search the web"))),
        ("invalid_tool_name", (ASK, asks("a", ""))),
        ("unsupported_part", ({"role": "user", "parts": [{"type": "uri", "uri": "x.png"}]},)),
    ],
)
def test_what_the_api_would_refuse_is_refused_by_name(reason: str, messages: tuple[Message, ...]) -> None:
    with pytest.raises(NotChatError, match=f"^{reason}$"):
        chatted(*messages)


def test_answers_find_their_calls_in_any_order_and_words_beside_them_are_the_users() -> None:
    found = chatted(ASK, PAIR, answers("b", "y"), BOTH, asks("c"))
    assert [(one["role"], one.get("tool_call_id"), one["content"]) for one in found[2:]] == [
        ("tool", "b", "y"),
        ("tool", "a", "x"),
        ("user", None, "And?"),
        ("assistant", None, None),
    ]


def test_calls_and_answers_without_ids_are_numbered_alike() -> None:
    calls = [asks("", "search")["parts"][0], asks("", "fetch")["parts"][0]]
    found = chatted(ASK, {"role": "assistant", "parts": calls}, answers("", "x"), answers("", "y"))
    asked = [call["id"] for call in found[1]["tool_calls"]]
    assert len(set(asked)) == 2
    assert [(one["tool_call_id"], one["content"]) for one in found[2:]] == list(zip(asked, "xy", strict=True))


@pytest.mark.parametrize(
    ("reason", "tools"),
    [
        ("too_many_tools", [{"name": f"f{number}"} for number in range(129)]),
        ("invalid_tool_name", [{"name": "search the web"}]),
        ("invalid_tool_name", [{"description": "nameless"}]),
        ("invalid_tool_name", [{"name": "f" * 65}]),
        ("invalid_tool_schema", [{"name": "f", "parameters": ["query"]}]),
    ],
)
def test_tools_that_the_api_would_refuse_are_refused_by_name(reason: str, tools: list[dict[str, Any]]) -> None:
    with pytest.raises(NotChatError, match=f"^{reason}$"):
        tool_definitions(json.dumps(tools))


def test_as_many_tools_with_names_as_long_as_the_api_takes_are_taken() -> None:
    assert len(tool_definitions(json.dumps([{"name": "f" * 61 + f"{number:03}"} for number in range(128)]))) == 128
    assert tool_definitions("") == []


@pytest.mark.parametrize(("margin", "pairs"), [(0.0, 1), (0.49, 1), (0.5, 0), (0.51, 0)])
def test_a_pair_differs_by_more_than_the_margin(margin: float, pairs: int) -> None:
    world = World()
    for name, said, reward in (("a", "good", 1.0), ("b", "poor", 0.5)):
        attempt(world, name, text("assistant", said), reward=reward)
    found, accepted, rejected = lines("preferences", transitions(world), margin=margin)
    assert (len(found), accepted, rejected) == (pairs, 2 * pairs, {} if pairs else {"no_margin": 2})


def test_equal_states_of_other_tasks_are_no_alternatives() -> None:
    world = World()
    attempt(world, "a", text("assistant", "good"), reward=1.0, task="one")
    attempt(world, "b", text("assistant", "poor"), reward=0.0, task="other")
    assert lines("preferences", transitions(world)) == ([], 0, {"no_alternative": 2})


def test_a_conversation_counts_from_the_least_reward_on() -> None:
    world = World()
    for name, reward in (("a", 0.5), ("b", 0.49), ("c", None)):
        attempt(world, name, text("assistant", f"So {name}."), reward=reward)
    found, accepted, rejected = lines("openai", transitions(world), min_reward=0.5)
    assert ([line["messages"][-1]["content"] for line in found], accepted) == (["So a."], 1)
    assert rejected == {"reward_too_low": 2}


@pytest.mark.parametrize(
    "part",
    [
        {"type": "reasoning", "content": "Hm."},
        {"type": "thinking", "thinking": "Hm.", "signature": "x"},
        {"text": "Hm.", "thought": True},
    ],
)
def test_thinking_is_reasoning_content_where_the_form_has_a_place(part: dict[str, Any]) -> None:
    message = {"role": "assistant", "parts": [part, {"type": "text", "content": "So."}]}
    parsed = parse_messages(json.dumps([ASK, message]))
    assert chat(parsed, with_reasoning=True)[1] == {"role": "assistant", "reasoning_content": "Hm.", "content": "So."}
    with pytest.raises(NotChatError, match="unsupported_part"):
        chat(parsed)


def test_thinking_without_its_text_is_unsupported() -> None:
    hidden: dict[str, Any] = {"type": "reasoning", "id": "rs", "summary": []}
    message: dict[str, Any] = {"role": "assistant", "parts": [hidden, {"type": "text", "content": "So."}]}
    with pytest.raises(NotChatError, match="unsupported_part"):
        chat(parse_messages(json.dumps([ASK, message])), with_reasoning=True)
