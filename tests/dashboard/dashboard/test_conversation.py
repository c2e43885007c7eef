"""Transitions as a conversation."""

import json

from hypothesis import given
from hypothesis import strategies as st

from spanloop.dashboard.view_models import conversation as messages
from spanloop.dashboard.view_models.conversation import (
    ChatMessage,
    MessagePart,
    StepRecord,
    build_conversation,
    parse_messages,
)

SYSTEM = {"role": "system", "parts": [{"type": "text", "content": "be kind"}]}
QUESTION = {"role": "user", "parts": [{"type": "text", "content": "where is it?"}]}
CALL = {
    "role": "assistant",
    "parts": [{"type": "tool_call", "id": "c1", "name": "find", "arguments": {"order": 7}}],
}
ANSWER = {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "gone"}]}
RESULT = {
    "tool_call_id": "c1",
    "name": "find",
    "status": "error",
    "error_type": "KeyError",
    "content": "gone",
    "duration_ns": 5,
}
FINAL = {"role": "assistant", "parts": [{"type": "text", "content": "it is lost"}]}


def record(step: int, state: object, action: object, results: object = (), agent: str = "a") -> StepRecord:
    return StepRecord(step, agent, json.dumps(state), json.dumps(action), json.dumps(results))


def test_each_message_is_shown_once() -> None:
    first, second = build_conversation(
        [record(0, [SYSTEM, QUESTION], CALL, [RESULT]), record(1, [SYSTEM, QUESTION, CALL, ANSWER], FINAL)]
    )
    assert [message.role for message in first.new_messages] == ["system", "user"]
    assert first.action.parts == (MessagePart("tool_call", '{"order": 7}', name="find", call_id="c1"),)
    assert first.tool_results[0].is_error
    assert first.tool_results[0].error_type == "KeyError"
    assert second.new_messages == ()
    assert not second.is_restart


def test_what_the_user_said_in_between_is_new() -> None:
    more = {"role": "user", "parts": [{"type": "text", "content": "and now?"}]}
    _, second = build_conversation(
        [record(0, [QUESTION], CALL, [RESULT]), record(1, [QUESTION, CALL, ANSWER, more], FINAL)]
    )
    assert [message.role for message in second.new_messages] == ["user"]


def test_a_tool_response_that_no_result_covers_is_shown() -> None:
    _, second = build_conversation([record(0, [QUESTION], CALL), record(1, [QUESTION, CALL, ANSWER], FINAL)])
    assert second.new_messages == (ChatMessage("tool", (MessagePart("tool_call_response", "gone", "find", "c1"),)),)


def test_a_diverged_prompt_is_shown_whole_and_says_so() -> None:
    _, second = build_conversation([record(0, [SYSTEM, QUESTION], FINAL), record(1, [QUESTION], FINAL)])
    assert second.is_restart
    assert [message.role for message in second.new_messages] == ["user"]


def test_the_outer_conversation_goes_on_after_a_sub_agent() -> None:
    inner = {"role": "user", "parts": [{"type": "text", "content": "only this"}]}
    _, second, third = build_conversation(
        [
            record(0, [SYSTEM, QUESTION], CALL, [RESULT]),
            record(1, [inner], FINAL),
            record(2, [SYSTEM, QUESTION, CALL, ANSWER], FINAL),
        ]
    )
    assert second.is_restart
    assert not third.is_restart
    assert third.new_messages == ()


def test_agents_have_conversations_of_their_own() -> None:
    _, other = build_conversation([record(0, [SYSTEM], FINAL, agent="a"), record(1, [QUESTION], FINAL, agent="b")])
    assert not other.is_restart


def test_broken_json_is_shown_and_not_dropped() -> None:
    assert parse_messages("{broken") == (ChatMessage("raw", (MessagePart("raw", "{broken"),)),)
    assert messages.parse_tool_results("oops")[0].content == "oops"
    assert messages.parse_action("").parts == ()


def test_unknown_parts_are_shown_as_stored() -> None:
    (message,) = parse_messages(json.dumps([{"role": "user", "parts": [{"type": "image", "uri": "x"}, 3]}]))
    assert [part.kind for part in message.parts] == ["raw", "raw"]


def test_prose_spelling_of_a_tool_response_is_read() -> None:
    (message,) = parse_messages('[{"role": "tool", "parts": [{"type": "tool_call_response", "result": {"a": 1}}]}]')
    assert message.parts[0].content == '{"a": 1}'


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(categories=None)),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(json_values)
def test_any_json_becomes_messages(value: object) -> None:
    text = json.dumps(value)
    assert isinstance(parse_messages(text), tuple)
    assert isinstance(messages.parse_tool_results(text), tuple)
    steps = build_conversation([StepRecord(0, "", text, text, text)])
    assert len(steps) == 1
    parts = [part for message in (*steps[0].new_messages, steps[0].action) for part in message.parts]
    for shown in (*(part.content for part in parts), messages.pretty_json(text)):
        shown.encode()  # a page cannot show half of a surrogate pair


def test_a_text_that_is_nested_too_deep_is_shown_as_stored() -> None:
    deep = "[" * 5_000
    (message,) = parse_messages(deep)
    assert message.parts[0].content == messages.pretty_json(deep) == deep


@given(st.text())
def test_any_text_becomes_messages(text: str) -> None:
    shown = parse_messages(text)
    assert shown or not text or json.loads(text) == []


def test_a_response_names_the_tool_that_an_earlier_message_called() -> None:
    state = json.dumps(
        [
            {"role": "assistant", "parts": [{"type": "tool_call", "id": "c1", "name": "search", "arguments": "{}"}]},
            {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "sunny"}]},
            {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c2", "response": "rain"}]},
        ]
    )
    _, known, unknown = (message.parts[0] for message in parse_messages(state))
    assert (known.name, known.content) == ("search", "sunny")
    assert unknown.name == ""
