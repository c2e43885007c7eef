"""One episode: what happened, turn by turn, span by span and token by token."""
# pyright: reportUnknownMemberType=false

from typing import Final

import polars as pl
import streamlit as st
from streamlit.column_config import NumberColumn, TextColumn

from spanloop.dashboard import resources
from spanloop.dashboard.components import markup, tables
from spanloop.dashboard.components import spans as span_view
from spanloop.dashboard.components import tokens as token_view
from spanloop.dashboard.components.chat import chat
from spanloop.dashboard.components.markup import plain
from spanloop.dashboard.components.page_frame import nothing_yet
from spanloop.dashboard.queries import episodes as reads
from spanloop.dashboard.view_models.formatting import count, duration, signed
from spanloop.store import Store

_VIEWS: Final = ("Conversation", "Spans", "Rewards", "Transitions", "Tokens", "Failures")
_STEPS_AT_ONCE: Final = 20


def show(store: Store, episode_id: str) -> None:
    """Draw the episode, or say that there is none of that id."""
    if st.button("All episodes", icon=":material/arrow_back:", type="tertiary"):
        st.query_params.pop("episode", None)
        st.rerun()
    head = reads.episode(store, episode_id)
    if head is None:
        nothing_yet(
            f"The store has no episode {episode_id!r}.",
            "It may not be converted yet:",
            resources.command("convert"),
        )
        return
    if head.is_deleted:
        st.warning(
            "This episode's spans joined another episode. Find it in the list by its task.", icon=":material/merge:"
        )
        return
    _head(head)
    view = st.segmented_control(
        "View", _VIEWS, default=_VIEWS[0], key="view", bind="query-params", label_visibility="collapsed", required=True
    )
    match view:
        case "Spans":
            _spans(store, head)
        case "Rewards":
            _rewards(store, head)
        case "Transitions":
            _transitions(store, head)
        case "Tokens":
            token_view.rows(store, head)
        case "Failures":
            _failures(store, head)
        case _:
            _conversation(store, head)


def _head(head: reads.Episode) -> None:
    outcome = {"success": ":green[✓ success]", "failure": ":red[✕ failure]"}.get(head.outcome, ":gray[unknown outcome]")
    facts = [
        outcome,
        f"task **{plain(head.task_id)}**" if head.task_id else "",
        f"policy **{plain(head.policy_version)}**" if head.policy_version else "",
        f"agent **{plain(head.agent_name)}**" if head.agent_name else "",
        f"started {head.started_at:%Y-%m-%d %H:%M:%S} UTC",
        "finished" if head.is_terminated else "cut short" if head.is_truncated else "",
    ]
    st.markdown(" · ".join(fact for fact in facts if fact))
    if head.error_class:
        st.markdown(f":red[Decided by a failure of the **{plain(head.fault_owner)}**: {plain(head.error_class)}]")
    columns = st.columns(6)
    columns[0].metric("Reward", signed(head.reward))
    columns[1].metric("Steps", head.step_count)
    columns[2].metric("Tool errors", f"{head.tool_error_count} / {head.tool_call_count}")
    columns[3].metric("Tokens in", count(head.input_tokens))
    columns[4].metric("Tokens out", count(head.output_tokens))
    columns[5].metric("Took", duration(head.duration_ns))


def _conversation(store: Store, head: reads.Episode) -> None:
    if not head.step_count:
        st.info("This episode has no step: no model call of it could be read.", icon=":material/inbox:")
        return
    first = 0
    if head.step_count > _STEPS_AT_ONCE:
        starts = list(range(0, head.step_count, _STEPS_AT_ONCE))
        first = st.selectbox(
            "Steps", starts, format_func=lambda start: f"{start} to {min(start + _STEPS_AT_ONCE, head.step_count) - 1}"
        )
    # The step before the window is read too: it says which messages are new in the window's first step.
    records = reads.step_records(store, head, max(0, first - 1), first + _STEPS_AT_ONCE - 1)
    chat(records, first)


def _spans(store: Store, head: reads.Episode) -> None:
    span_view.show(store, reads.spans(store, head))


def _rewards(store: Store, head: reads.Episode) -> None:
    st.markdown(
        f"The episode's reward is **{signed(head.reward)}**." if head.reward is not None else "No reward is known."
    )
    if head.reward_breakdown:
        frame = pl.DataFrame(
            {"component": list(head.reward_breakdown), "value": list(head.reward_breakdown.values())},
            schema={"component": pl.String, "value": pl.Float64},
        )
        tables.show(frame, {"value": NumberColumn(format="%+.4f")})
    steps = reads.transitions(store, head)
    rewarded = steps.filter(pl.col("reward").is_not_null()).select("step", "reward", "reward_breakdown")
    if not rewarded.is_empty():
        st.markdown("**By step**")
        tables.show(rewarded, {"reward": NumberColumn(format="%+.4f"), "reward_breakdown": TextColumn("made of")})
    scores = reads.episode_scores(store, head)
    if scores.is_empty():
        st.caption("No score was sent for this episode.")
        return
    st.markdown("**Scores that were sent**")
    tables.show(
        scores.select("scored_at", "name", "value", "label", "comment", "source"),
        {"scored_at": tables.when("when"), "value": NumberColumn(format="%+.4f")},
    )


def _transitions(store: Store, head: reads.Episode) -> None:
    found = reads.transitions(store, head)
    if found.is_empty():
        st.info("No transition could be made of this episode.", icon=":material/inbox:")
        return
    trainable = int(found["is_trainable"].sum())
    st.caption(f"{trainable} of {found.height} transitions may be trained on. The others say why not.")
    shown = found.select(
        "step",
        tables.yes_no("is_trainable"),
        pl.when(pl.col("is_trainable"))
        .then(pl.lit(""))
        .otherwise(pl.format("{}: {}", "untrainable_reason", "untrainable_detail").str.strip_chars(": "))
        .alias("why_not"),
        "reward",
        "finish_reason",
        "token_source",
        "capture_join",
        "prompt_tokens",
        "response_tokens",
        "tool_error_count",
        pl.when(pl.col("error_class") == "")
        .then(pl.lit(""))
        .otherwise(pl.format("{} · {}", "fault_owner", "error_class"))
        .alias("failure"),
        (pl.col("duration_ns").cast(pl.Float64) / 1e9).alias("duration_s"),
    )
    picked = tables.pick_row(
        shown,
        [str(step) for step in shown["step"]],
        key="transitions",
        columns={
            "step": NumberColumn(width=50),
            "is_trainable": TextColumn("trainable", width=75),
            "why_not": TextColumn("why not", width=170),
            "reward": NumberColumn(format="%+.2f", width=70),
            "finish_reason": TextColumn("finish", width=90),
            "token_source": TextColumn("tokens from", width=90),
            "capture_join": TextColumn("joined by", width=100),
            "prompt_tokens": NumberColumn("prompt", width=65),
            "response_tokens": NumberColumn("response", width=70),
            "tool_error_count": NumberColumn("tool errors", width=80),
            "failure": TextColumn("failure", width=140),
            "duration_s": NumberColumn("took (s)", format="%.2f", width=75),
        },
    )
    if picked is not None:
        st.query_params["step"] = picked
    step = st.query_params.get("step", "")
    if step.isdecimal():
        token_view.transition(store, head, int(step))
    else:
        st.caption("Click a row to see the step's tokens.")


def _failures(store: Store, head: reads.Episode) -> None:
    if not failure_cards(store, head):
        st.success("Nothing failed in this episode.", icon=":material/check:")


def failure_cards(store: Store, head: reads.Episode) -> int:
    """Draw each failure of the episode with what its rule saw; how many there are."""
    found = reads.episode_failures(store, head)
    for row in found.iter_rows(named=True):
        recovered = ":gray[recovered]" if row["is_recovered"] else ":red[not recovered]"
        tool = f" · tool **{plain(row['tool_name'])}**" if row["tool_name"] else ""
        with st.container(border=True):
            owner, error_class = plain(row["fault_owner"]), plain(row["error_class"])
            st.markdown(f"Step {row['step']} · **{owner}** · {error_class}{tool} · {recovered}")
            st.html(markup.text_block(row["message"]))
            st.caption(f"rule {plain(row['rule'])} · confidence {row['confidence']:.0%} · span {row['span_id']}")
            with st.expander("Evidence: what the rule saw"):
                st.code(markup.cut(row["evidence"]), language="json", wrap_lines=True)
            st.page_link(
                "../pages/failures.py",
                label="Others like it",
                icon=":material/stacks:",
                query_params={"group": row["fingerprint"]},
            )
    return found.height
