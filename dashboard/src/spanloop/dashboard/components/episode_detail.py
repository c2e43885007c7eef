"""Draw one episode: summary, conversation, spans, rewards, transitions, tokens and failures."""
# pyright: reportUnknownMemberType=false

from typing import Final
from zoneinfo import ZoneInfo

import polars as pl
import streamlit as st

from spanloop.dashboard import resources
from spanloop.dashboard.components import markup, tables, token_inspector
from spanloop.dashboard.components.chat import choose_format, show_conversation
from spanloop.dashboard.components.judging import panel
from spanloop.dashboard.components.markup import escape_md
from spanloop.dashboard.components.page_frame import draw_again, empty_state, link_back, linked_page
from spanloop.dashboard.components.record_list import address
from spanloop.dashboard.components.spans import inspector
from spanloop.dashboard.queries import episodes
from spanloop.dashboard.view_models.formatting import count, duration, one_line, short_id, signed
from spanloop.store import Store

_VIEWS: Final = ("Conversation", "Spans", "Rewards", "Transitions", "Tokens", "Failures")
_WINDOW_STEPS: Final = 20
_MAX_TRACES: Final = 4


def show(store: Store, episode_id: str) -> None:
    """Draw the episode, or a message when no episode has the id."""
    link_back("episodes", "All episodes")
    episode = episodes.fetch_episode(store, episode_id)
    if episode is None:
        empty_state(
            f"The store has no episode {episode_id!r}.",
            "It may not be converted yet:",
            resources.cli_command("convert"),
        )
        return
    if episode.is_deleted:
        st.warning(
            "This episode's spans now belong to another one. Find it in the list by its task.", icon=":material/merge:"
        )
        return
    _summary(store, episode)
    if panel.show(store, episode):
        draw_again()
    view = st.segmented_control(
        "View", _VIEWS, default=_VIEWS[0], key="view", bind="query-params", label_visibility="collapsed", required=True
    )
    match view:
        case "Spans":
            inspector.show(
                store,
                lambda: episodes.fetch_episode_spans(store, episode),
                (episode.revision,),
                "episodes",
                episode=episode_id,
                view="Spans",
            )
        case "Rewards":
            _rewards(store, episode)
        case "Transitions":
            _transitions(store, episode)
        case "Tokens":
            token_inspector.show_token_rows(store, episode)
        case "Failures":
            _failures(store, episode)
        case _:
            _conversation(store, episode)


def show_to_judge(store: Store, episode: episodes.Episode) -> None:
    """Draw what a person needs to judge an episode: outcome, the rules' verdicts, and the conversation."""
    _summary(store, episode)
    show_failure_cards(store, episode)
    _conversation(store, episode)


def _summary(store: Store, episode: episodes.Episode) -> None:
    outcome = {"success": ":green[✓ success]", "failure": ":red[✕ failure]"}.get(
        episode.outcome, ":gray[unknown outcome]"
    )
    local = episode.started_at.astimezone(ZoneInfo(resources.time_zone()))
    agent = episode.agent_name or episode.service_name
    tokens = f"{count(episode.input_tokens)} + {count(episode.output_tokens)} tokens"
    facts = [
        outcome,
        f"reward **{signed(episode.reward)}**" if episode.reward is not None else "",
        f"task **{escape_md(episode.task_id)}**" if episode.task_id else "",
        f"version **{escape_md(episode.policy_version)}**" if episode.policy_version else "",
        f"model **{escape_md(episode.model)}**" if episode.model and episode.model != episode.policy_version else "",
        f"agent **{escape_md(agent)}**" if agent else "",
        f"{episode.step_count} step{'' if episode.step_count == 1 else 's'}",
        f"{episode.tool_error_count} of {episode.tool_call_count} tool calls failed" if episode.tool_call_count else "",
        tokens,
        f"took {duration(episode.duration_ns)}",
        f"started {local:%Y-%m-%d %H:%M:%S %Z}",
        "finished" if episode.is_terminated else "cut short" if episode.is_truncated else "",
    ]
    st.markdown(" · ".join(fact for fact in facts if fact))
    if episode.marks:
        st.markdown("marks " + " · ".join(f"**{escape_md(label)}**" for label in episode.marks))
    if episode.error_class:
        _deciding_failure(store, episode)
    with st.container(horizontal=True):
        for trace_id in episode.trace_ids[:_MAX_TRACES]:
            st.page_link(
                linked_page("traces"),
                label=f"Trace {short_id(escape_md(trace_id))}",
                icon=":material/account_tree:",
                query_params={"trace": trace_id},
            )
        if episode.task_id:
            st.page_link(
                linked_page("episodes"),
                label="Other attempts at its task",
                icon=":material/forum:",
                query_params={"task": episode.task_id},
            )


def _deciding_failure(store: Store, episode: episodes.Episode) -> None:
    """Draw whose failure decided the outcome, and its message."""
    failures = episodes.fetch_episode_failures(store, episode)
    same = failures.filter(
        (pl.col("error_class") == episode.error_class) & (pl.col("fault_owner") == episode.fault_owner)
    )
    message = f" {escape_md(one_line(same['message'][0], 400))}" if not same.is_empty() else ""
    owner = "unknown owner" if episode.fault_owner == "unknown" else f"owner **{escape_md(episode.fault_owner)}**"
    st.markdown(f":red[✕ Decided by a failure of {owner}: {escape_md(episode.error_class)}]{message}")


def _conversation(store: Store, episode: episodes.Episode) -> None:
    if not episode.step_count:
        st.info("This episode has no step: none of its model calls is readable.", icon=":material/inbox:")
        return
    first_step = 0
    if episode.step_count > _WINDOW_STEPS:
        starts = list(range(0, episode.step_count, _WINDOW_STEPS))
        first_step = st.selectbox(
            "Steps",
            starts,
            format_func=lambda start: f"{start} to {min(start + _WINDOW_STEPS, episode.step_count) - 1}",
        )
    choose_format()
    # The step before is read too, to determine which messages are new in the first one drawn.
    records = episodes.fetch_step_records(store, episode, max(0, first_step - 1), first_step + _WINDOW_STEPS - 1)
    show_conversation(records, first_step, step_errors(store, episode))


def step_errors(store: Store, episode: episodes.Episode) -> dict[int, str]:
    """Return the message of the first failure of each step that has one."""
    failures = episodes.fetch_episode_failures(store, episode)
    return dict(failures.select("step", "message").reverse().iter_rows())


def _rewards(store: Store, episode: episodes.Episode) -> None:
    st.markdown(
        f"The episode's reward is **{signed(episode.reward)}**." if episode.reward is not None else "No known reward."
    )
    if episode.reward_breakdown:
        frame = pl.DataFrame(
            {"component": list(episode.reward_breakdown), "value": list(episode.reward_breakdown.values())},
            schema={"component": pl.String, "value": pl.Float64},
        )
        tables.show(frame, {"value": tables.number_column(form="+.4f")})
    steps = episodes.fetch_transitions(store, episode)
    rewarded = steps.filter(pl.col("reward").is_not_null()).select("step", "reward", "reward_breakdown")
    if not rewarded.is_empty():
        st.markdown("**By step**")
        tables.show(
            rewarded, {"reward": tables.number_column(form="+.4f"), "reward_breakdown": tables.text_column("made of")}
        )
    scores = episodes.fetch_episode_scores(store, episode)
    if scores.is_empty():
        st.caption("The app sent no score for this episode.")
        return
    st.markdown("**Scores from the app**")
    tables.show(
        scores.select("scored_at", "name", "value", "label", "comment", "source"),
        {"scored_at": tables.time_column("when"), "value": tables.number_column(form="+.4f")},
    )


def _transitions(store: Store, episode: episodes.Episode) -> None:
    steps = episodes.fetch_transitions(store, episode)
    if steps.is_empty():
        st.info("This episode has no transition.", icon=":material/inbox:")
        return
    trainable = int(steps["is_trainable"].sum())
    st.caption(f"{trainable} of {steps.height} transitions are trainable. The others state the reason.")
    columns = steps.select(
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
    tables.show(
        columns,
        {
            "step": tables.number_column(width=50),
            "is_trainable": tables.text_column("trainable", width=75),
            "why_not": tables.text_column("why not", width=170),
            "reward": tables.number_column(form="+.2f", width=70),
            "finish_reason": tables.text_column("finish", width=90),
            "token_source": tables.text_column("tokens from", width=90),
            "capture_join": tables.text_column("joined by", width=100),
            "prompt_tokens": tables.number_column("prompt", width=65),
            "response_tokens": tables.number_column("response", width=70),
            "tool_error_count": tables.number_column("tool errors", width=80),
            "failure": tables.text_column("failure", width=140),
            "duration_s": tables.number_column("took (s)", form=".2f", width=75),
        },
        [
            address("episodes", episode=episode.episode_id, view="Transitions", step=f"{number}")
            for number in columns["step"].to_list()
        ],
        key="transitions",
        current=f"&step={st.query_params.get('step', 'none')}",
    )
    step = st.query_params.get("step", "")
    if step.isdecimal():
        token_inspector.show_transition(store, episode, int(step))
    else:
        st.caption("Click a row to see the step's tokens.")


def _failures(store: Store, episode: episodes.Episode) -> None:
    if not show_failure_cards(store, episode):
        st.success("Nothing failed in this episode.", icon=":material/check:")


def show_failure_cards(store: Store, episode: episodes.Episode) -> int:
    """Draw each failure of the episode with its evidence; return their number."""
    failures = episodes.fetch_episode_failures(store, episode)
    for row in failures.iter_rows(named=True):
        recovered = ":gray[recovered]" if row["is_recovered"] else ":red[not recovered]"
        tool = f" · tool **{escape_md(row['tool_name'])}**" if row["tool_name"] else ""
        with st.container(border=True):
            owner, error_class = escape_md(row["fault_owner"]), escape_md(row["error_class"])
            st.markdown(f"Step {row['step']} · **{owner}** · {error_class}{tool} · {recovered}")
            st.html(markup.text_block(row["message"]))
            st.caption(
                f"rule {escape_md(row['rule'])} · confidence {row['confidence']:.0%} · span {escape_md(row['span_id'])}"
            )
            panel.show_for_failure(store, episode, row)
            with st.expander("Evidence of the rule"):
                st.code(markup.truncate(row["evidence"]), language="json", wrap_lines=True)
            st.page_link(
                linked_page("failures"),
                label="Similar failures",
                icon=":material/stacks:",
                query_params={"group": row["fingerprint"]},
            )
    return failures.height
