"""Draw one span beside the tree: what was said, its request, its attributes, its scores and its tokens."""
# pyright: reportUnknownMemberType=false

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final
from zoneinfo import ZoneInfo

import polars as pl
import streamlit as st

from spanloop.dashboard import resources
from spanloop.dashboard.components import chat, markup, tables, token_inspector
from spanloop.dashboard.components.markup import escape_md
from spanloop.dashboard.components.page_frame import linked_page
from spanloop.dashboard.queries import episodes, traces
from spanloop.dashboard.view_models.conversation import StepRecord, pretty_json
from spanloop.dashboard.view_models.formatting import count, duration
from spanloop.dashboard.view_models.span_content import is_of_request, nested_json, read_content
from spanloop.dashboard.view_models.span_tree import Span
from spanloop.store import Store

_PARTS: Final = ("Messages", "Attributes", "Request", "Scores", "Tokens")
"""Views of a span; the first is the default."""


def show(store: Store, span: Span, path: str, place: Mapping[str, str]) -> None:
    """Draw the span; ``path`` and ``place`` are the page's address without it."""
    detail = traces.fetch_span(store, span)
    if detail is None:
        st.info("This span is no longer stored.", icon=":material/inbox:")
        return
    step = traces.fetch_span_step(store, span)
    _heading(span, detail, step, path, place)
    part = st.segmented_control(
        "View of the span",
        _PARTS,
        default=_PARTS[0],
        key="part",
        bind="query-params",
        label_visibility="collapsed",
        required=True,
    )
    match part:
        case "Attributes":
            _attributes(detail)
        case "Request":
            _request(detail.attributes)
        case "Scores":
            _scores(store, span)
        case "Tokens":
            _tokens(store, step)
        case _:
            _messages(store, span, detail, step)


def _heading(
    span: Span, detail: traces.SpanDetail, step: traces.SpanStep | None, path: str, place: Mapping[str, str]
) -> None:
    local = datetime.fromtimestamp(span.start_ns / 1e9, UTC).astimezone(ZoneInfo(resources.time_zone()))
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.subheader(escape_md(span.name or "(no name)"), anchor=False)
        st.page_link(linked_page(path), label="Close", icon=":material/close:", query_params=dict(place))
    tokens = f"{count(span.input_tokens)} → {count(span.output_tokens)} tokens"
    facts = [
        f"took **{duration(span.duration_ns)}**",
        f"started {local:%H:%M:%S.%f}"[:-3] + f" {local:%Z}",
        f"model **{escape_md(span.model)}**" if span.model else "",
        f"tool **{escape_md(span.tool_name)}**" if span.tool_name else "",
        tokens if span.input_tokens or span.output_tokens else "",
        f"span {escape_md(span.span_id)}",
    ]
    st.markdown(" · ".join(fact for fact in facts if fact))
    if span.is_error:
        kind = escape_md(span.error_type or "error")
        st.markdown(f":red[✕ **{kind}**]")
        if detail.status_message:
            st.html(markup.text_block(detail.status_message, at_most=4_000))
    if step is not None:
        st.page_link(
            linked_page("episodes"),
            label=f"Step {step.step} of episode {escape_md(step.episode_id[:10])}",
            icon=":material/forum:",
            query_params={"episode": step.episode_id},
        )


def _messages(store: Store, span: Span, detail: traces.SpanDetail, step: traces.SpanStep | None) -> None:
    """Draw the messages of a model call as a chat, or the arguments and the result of a tool."""
    episode = None if step is None else episodes.fetch_episode(store, step.episode_id)
    content = read_content(detail.attributes)
    if step is not None and episode is not None:
        chat.choose_format()
        records = episodes.fetch_step_records(store, episode, step.step, step.step)
        chat.show_conversation(records, step.step, {step.step: detail.status_message or span.error_type})
    elif content.input_messages or content.output_messages:
        chat.choose_format()
        record = StepRecord(0, "", content.input_messages, content.output_messages, "")
        chat.show_messages(record, error=detail.status_message or span.error_type)
    elif content.values:
        for title, value in content.values.items():
            st.markdown(f"**{escape_md(title)}**")
            chat.show_value(value)
    else:
        st.caption("No message, argument or result is recorded in this span.")
        _attributes(detail)


def _attributes(detail: traces.SpanDetail) -> None:
    _values("Attributes", detail.attributes)
    for name, attributes in detail.events:
        _values(f"Event: {name}", attributes)
    _values(
        "Resource", detail.resource | {"scope": detail.scope_name, "status": f"{detail.status} {detail.status_message}"}
    )


def _values(title: str, values: Mapping[str, str]) -> None:
    """Draw short values as a table, and JSON and long texts below it."""
    st.markdown(f"**{escape_md(title)}**")
    long = {name: value for name, value in values.items() if len(value) > 200 or value.startswith(("{", "["))}
    short = {name: value for name, value in sorted(values.items()) if name not in long}
    if short:
        tables.show_facts(short, heading="name")
    for name, value in sorted(long.items()):
        with st.expander(escape_md(name)):
            chat.show_value(value)


def _request(attributes: Mapping[str, str]) -> None:
    """Draw what was sent, as it was recorded."""
    request = {name: value for name, value in sorted(attributes.items()) if is_of_request(name)}
    if not request:
        st.caption("This span records no request.")
        return
    text = nested_json(request)
    chat.show_value(text)
    with st.expander("As text, to copy"):
        st.code(markup.truncate(pretty_json(text)), language="json", wrap_lines=True, height=260)


def _scores(store: Store, span: Span) -> None:
    scores = traces.fetch_span_scores(store, span)
    if scores.is_empty():
        st.caption("No score names this span or its trace.")
        return
    tables.show(
        scores.select("name", "value", "label", "comment", "of", "source", "scored_at"),
        {
            "name": tables.text_column(width=110),
            "value": tables.number_column(form="+.4g", width=70),
            "scored_at": tables.time_column("when"),
        },
    )


def _tokens(store: Store, step: traces.SpanStep | None) -> None:
    episode = None if step is None else episodes.fetch_episode(store, step.episode_id)
    if step is None or episode is None:
        st.caption("Only the model calls of converted episodes have tokens.")
        return
    if episodes.fetch_transitions(store, episode).filter(pl.col("step") == step.step)["response_tokens"].sum() == 0:
        st.caption("No token of this call was recorded; calls through the gateway have them.")
        return
    token_inspector.show_transition(store, episode, step.step)
