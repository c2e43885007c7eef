"""Draw a conversation as chat: each message once, tool results after their calls, errors marked."""
# pyright: reportUnknownMemberType=false

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import streamlit as st

from spanloop.dashboard.components import markup, stored_text
from spanloop.dashboard.view_models.conversation import (
    ChatMessage,
    ConversationStep,
    MessagePart,
    StepRecord,
    ToolResult,
    build_conversation,
    pretty_json,
)
from spanloop.dashboard.view_models.formatting import duration, short_id

_FOLD_FROM: Final = 4
"""Fold the messages before a prompt's last user message (examples, history) when there are at least so many."""
_FORMATS: Final = ("Markdown", "Verbatim")
_AVATARS: Final = {
    "system": ":material/settings:",
    "user": ":material/person:",
    "assistant": ":material/smart_toy:",
    "tool": ":material/build:",
}


def choose_format() -> None:
    """Draw the choice between Markdown and texts as they are stored; the address states it."""
    st.segmented_control(
        "Texts as",
        _FORMATS,
        default=_FORMATS[0],
        key="text",
        bind="query-params",
        label_visibility="collapsed",
        required=True,
        help="Markdown is drawn without its links and images; verbatim shows every character.",
    )


def show_conversation(
    records: list[StepRecord], first_step: int, errors: Mapping[int, str] = MappingProxyType({})
) -> None:
    """Draw the steps from ``first_step`` on; earlier records only determine which messages are new.

    ``errors`` are messages of failures by step; they stand where a failed call has no answer.
    """
    steps = [step for step in build_conversation(records) if step.step >= first_step]
    has_several_agents = len({step.agent_name for step in steps}) > 1
    for step in steps:
        _step(step, errors.get(step.step, ""), has_several_agents=has_several_agents)


def show_messages(record: StepRecord, error: str = "") -> None:
    """Draw the messages of one model call that is no step of an episode."""
    for step in build_conversation([record]):
        _messages(step, error)


def show_turn(question: ConversationStep, answer: ConversationStep, *, between: str = "") -> None:
    """Draw one turn of a session: the new messages of its first step and the answer of its last one.

    Args:
        question: The first step.
        answer: The last step; the first one where the turn has one step.
        between: Markdown of a line about the steps between.
    """
    _prompt(question.new_messages)
    if between:
        st.caption(between)
    _message(answer.action)
    for result in answer.tool_results:
        _tool_result(result)


def _step(step: ConversationStep, error: str, *, has_several_agents: bool) -> None:
    agent = f" · {markup.escape_md(step.agent_name)}" if has_several_agents and step.agent_name else ""
    st.caption(f"step {step.step}{agent}")
    if step.is_restart:
        st.caption(":orange[This prompt does not continue an earlier step; all its messages are shown.]")
    _messages(step, error)


def _messages(step: ConversationStep, error: str) -> None:
    _prompt(step.new_messages)
    _message(step.action, error=error)
    for result in step.tool_results:
        _tool_result(result)


def _prompt(new_messages: tuple[ChatMessage, ...]) -> None:
    system_messages = [message for message in new_messages if message.role == "system"]
    messages = [message for message in new_messages if message.role != "system"]
    for message in system_messages:
        _message(message)
    question = max((index for index, message in enumerate(messages) if message.role == "user"), default=0)
    if question >= _FOLD_FROM:
        with st.expander(f"{question} earlier messages", icon=":material/history:"):
            for message in messages[:question]:
                _message(message, is_folded=True)
        messages = messages[question:]
    for message in messages:
        _message(message)


def _message(message: ChatMessage, *, is_folded: bool = False, error: str = "") -> None:
    if message.role == "system":
        with st.expander("System prompt", icon=_AVATARS["system"]):
            for part in message.parts:
                _part(part)
        return
    with st.chat_message(message.role, avatar=_AVATARS.get(message.role, ":material/help:")):
        if not message.parts and error:
            st.markdown(":red[✕ **The call failed, so there is no answer.**]")
            st.html(markup.text_block(error))
        elif not message.parts:
            st.caption("No answer is recorded.")
        for part in message.parts:
            _part(part, is_folded=is_folded)


def _part(part: MessagePart, *, is_folded: bool = False) -> None:
    match part.kind:
        case "text":
            _text(part.content)
        case "reasoning" if is_folded:  # expanders cannot be nested
            st.caption("Reasoning")
            _text(part.content)
        case "reasoning":
            with st.expander("Reasoning"):
                _text(part.content)
        case "tool_call":
            call = f" · {markup.escape_md(short_id(part.call_id, 14))}" if part.call_id else ""
            st.markdown(f":material/build: calls **{markup.escape_md(part.name)}**{call}")
            show_value(part.content)
        case "tool_call_response":
            if part.name:
                st.markdown(f"**{markup.escape_md(part.name)}** returned")
            show_value(part.content)
        case "raw":
            st.caption(":orange[This message part has an unknown format; it is shown as stored.]")
            st.code(markup.truncate(part.content), language=None, wrap_lines=True)


def _tool_result(result: ToolResult) -> None:
    elapsed = f" · {duration(result.duration_ns)}" if result.duration_ns else ""
    with st.chat_message("tool", avatar=_AVATARS["tool"]):
        if result.is_error:
            kind = f" · {markup.escape_md(result.error_type)}" if result.error_type else ""
            st.markdown(f":red[✕ **{markup.escape_md(result.name)}** failed{kind}]{elapsed}")
        else:
            st.markdown(f"**{markup.escape_md(result.name)}** returned{elapsed}")
        show_value(result.content)


def show_value(text: str) -> None:
    """Draw a value: JSON folds, any other text is a block of code."""
    if folded := stored_text.json_block(text):
        st.html(folded)
    else:
        st.code(markup.truncate(pretty_json(text)), language=None, wrap_lines=True)


def _text(text: str) -> None:
    is_verbatim = st.session_state.get("text") == _FORMATS[1]
    st.html(markup.text_block(text) if is_verbatim else stored_text.markdown_block(text))
