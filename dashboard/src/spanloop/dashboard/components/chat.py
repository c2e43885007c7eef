"""A conversation as chat: each message once, tool results under the call that caused them, errors marked."""
# pyright: reportUnknownMemberType=false

from typing import Final

import streamlit as st

from spanloop.dashboard.components import markup
from spanloop.dashboard.view_models.conversation import (
    Message,
    Part,
    StepRecord,
    ToolResult,
    Turn,
    conversation,
    pretty_json,
)
from spanloop.dashboard.view_models.formatting import duration, short_id

_FOLDED_FROM: Final = 4
"""Messages before the question of a first prompt, worked examples or a long history, from which on they are folded."""
_AVATARS: Final = {
    "system": ":material/settings:",
    "user": ":material/person:",
    "assistant": ":material/smart_toy:",
    "tool": ":material/build:",
}


def chat(records: list[StepRecord], first_step: int) -> None:
    """Draw the turns from ``first_step`` on; earlier records only say what was seen before."""
    turns = [turn for turn in conversation(records) if turn.step >= first_step]
    several = len({turn.agent_name for turn in turns}) > 1
    for turn in turns:
        _turn(turn, several_agents=several)


def _turn(turn: Turn, *, several_agents: bool) -> None:
    agent = f" · {turn.agent_name}" if several_agents and turn.agent_name else ""
    st.caption(f"step {turn.step}{agent}")
    if turn.is_restart:
        st.caption(":orange[A prompt that continues no step shown so far; all of it is shown.]")
    system = [message for message in turn.new_messages if message.role == "system"]
    others = [message for message in turn.new_messages if message.role != "system"]
    for message in system:
        _message(message)
    asked = max((index for index, message in enumerate(others) if message.role == "user"), default=0)
    if asked >= _FOLDED_FROM:
        with st.expander(f"{asked} earlier messages", icon=":material/history:"):
            for message in others[:asked]:
                _message(message, is_folded=True)
        others = others[asked:]
    for message in others:
        _message(message)
    _message(turn.action)
    for result in turn.tool_results:
        _tool_result(result)


def _message(message: Message, *, is_folded: bool = False) -> None:
    if message.role == "system":
        with st.expander("System prompt", icon=_AVATARS["system"]):
            for part in message.parts:
                _part(part)
        return
    with st.chat_message(message.role, avatar=_AVATARS.get(message.role, ":material/help:")):
        if not message.parts:
            st.caption("(empty)")
        for part in message.parts:
            _part(part, is_folded=is_folded)


def _part(part: Part, *, is_folded: bool = False) -> None:
    match part.kind:
        case "text":
            st.html(markup.text_block(part.content))
        case "reasoning" if is_folded:  # one expander cannot hold another
            st.caption("Reasoning")
            st.html(markup.text_block(part.content))
        case "reasoning":
            with st.expander("Reasoning"):
                st.html(markup.text_block(part.content))
        case "tool_call":
            call = f" · `{short_id(part.call_id, 14)}`" if part.call_id else ""
            st.markdown(f":material/build: calls **{markup.plain(part.name)}**{call}")
            st.code(markup.cut(pretty_json(part.content)), language="json", wrap_lines=True)
        case "tool_call_response":
            st.code(markup.cut(pretty_json(part.content)), language="json", wrap_lines=True)
        case "raw":
            st.caption(":orange[Not a canonical message part; shown as stored.]")
            st.code(markup.cut(part.content), language=None, wrap_lines=True)


def _tool_result(result: ToolResult) -> None:
    took = f" · {duration(result.duration_ns)}" if result.duration_ns else ""
    with st.chat_message("tool", avatar=_AVATARS["tool"]):
        if result.is_error:
            kind = f" · {markup.plain(result.error_type)}" if result.error_type else ""
            st.markdown(f":red[✕ **{markup.plain(result.name)}** failed{kind}]{took}")
        else:
            st.markdown(f"**{markup.plain(result.name)}** returned{took}")
        st.code(markup.cut(pretty_json(result.content)), language=None, wrap_lines=True)
