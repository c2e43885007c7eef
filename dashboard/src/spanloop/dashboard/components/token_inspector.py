"""Draw token ids as the trainer sees them: the token rows of an episode, or the response of one step."""
# pyright: reportUnknownMemberType=false

import json
from typing import Any, Final

import polars as pl
import streamlit as st

from spanloop.dashboard.components import markup, tables
from spanloop.dashboard.components.markup import escape_md
from spanloop.dashboard.components.page_frame import linked_page
from spanloop.dashboard.queries import episodes, token_decoder, training_jobs
from spanloop.dashboard.view_models.formatting import DASH, signed
from spanloop.dashboard.view_models.jobs import recipe
from spanloop.dashboard.view_models.token_cells import TokenCell, TokenWindow, with_texts
from spanloop.store import Store

_WINDOW_TOKENS: Final = 800
_PROMPT_TAIL_TOKENS: Final = 200
_LABELS: Final = ("Text", "Ids", "Text and ids")


def show_token_rows(store: Store, episode: episodes.Episode) -> None:
    """Draw the list of the episode's token rows, and the tokens of one."""
    rows = episodes.fetch_token_rows(store, episode)
    if rows.is_empty():
        _show_no_tokens()
        return
    _row_table(rows)
    _training_jobs(episode)
    numbers: list[int] = rows["row_number"].to_list()
    row_number = numbers[0]
    if len(numbers) > 1:
        row_number = st.selectbox("Row", numbers, key="row", width=140)
    row = rows.row(numbers.index(row_number), named=True)
    first_token = 0
    if row["response_tokens"] > _WINDOW_TOKENS:
        starts = list(range(0, row["response_tokens"], _WINDOW_TOKENS))
        last = row["response_tokens"] - 1
        first_token = st.selectbox(
            "Tokens", starts, format_func=lambda start: f"{start} to {min(start + _WINDOW_TOKENS - 1, last)}", width=200
        )
    window = episodes.fetch_token_window(
        store,
        episode,
        row_number,
        first_token=first_token,
        max_tokens=_WINDOW_TOKENS,
        prompt_tail=0 if first_token else _prompt_tail(row["prompt_tokens"]),
    )
    if window is not None:
        _tokens(window, row["policy_version"], prompt_is_shown=not first_token)


def show_transition(store: Store, episode: episodes.Episode, step: int) -> None:
    """Draw one step: how its response was sampled, which token rows contain it, and its tokens."""
    steps = episodes.fetch_transitions(store, episode).filter(pl.col("step") == step)
    if steps.is_empty():
        st.info(f"This episode has no step {step}.", icon=":material/inbox:")
        return
    summary = steps.row(0, named=True)
    st.subheader(f"Step {step}, down to its tokens", anchor=False)
    facts_area = st.container()
    prompt_tail = _prompt_tail(summary["prompt_tokens"]) if summary["prompt_tokens"] else 0
    transition = episodes.fetch_transition(store, episode, step, max_tokens=_WINDOW_TOKENS, prompt_tail=prompt_tail)
    if transition is None:
        return
    sampling: dict[str, Any] = transition.sampling
    facts = [
        f"sampled by **{escape_md(transition.policy_version)}**" if transition.policy_version else "",
        ", ".join(f"{escape_md(name)} {escape_md(str(value))}" for name, value in sampling.items()),
        f"reward **{signed(transition.reward)}**" if transition.reward is not None else "",
        f"finish {escape_md(transition.finish_reason)}" if transition.finish_reason else "",
        f"response {escape_md(transition.response_id)}" if transition.response_id else "",
    ]
    with facts_area:
        st.markdown(" · ".join(fact for fact in facts if fact))
        if not transition.is_trainable:
            reason = ": ".join(part for part in (transition.untrainable_reason, transition.untrainable_detail) if part)
            st.markdown(f":orange[Not trained on: {escape_md(reason)}]")
        if transition.window.response_tokens:
            _containing_rows(store, episode, step, summary["agent_name"])
            _training_jobs(episode)
    if not transition.window.response_tokens:
        _show_no_tokens()
        return
    _tokens(transition.window, transition.policy_version, prompt_is_shown=True)


def _show_no_tokens() -> None:
    st.info("The gateway captured no tokens here. SFT can still train on the text.", icon=":material/inbox:")


def _prompt_tail(prompt_tokens: int) -> int:
    if prompt_tokens <= _PROMPT_TAIL_TOKENS:
        return _PROMPT_TAIL_TOKENS
    show_all = st.toggle(f"Show the whole prompt ({prompt_tokens:,} tokens)", key="whole_prompt")
    return prompt_tokens if show_all else _PROMPT_TAIL_TOKENS


def _containing_rows(store: Store, episode: episodes.Episode, step: int, agent_name: str) -> None:
    """Draw which token rows contain the step."""
    rows = episodes.fetch_token_rows(store, episode).filter(
        (pl.col("agent_name") == agent_name) & (pl.col("first_step") <= step) & (pl.col("last_step") >= step)
    )
    for row in rows.iter_rows(named=True):
        steps = f"steps {row['first_step']} to {row['last_step']}" if row["last_step"] > row["first_step"] else "alone"
        usable = "it is trainable" if row["is_trainable"] else f"not trained on: {row['untrainable_reason']}"
        st.caption(f"In token row {row['row_number']} ({steps}); {escape_md(usable)}.")


def _training_jobs(episode: episodes.Episode) -> None:
    jobs = training_jobs.find_jobs_trained_on(episode.episode_id, episode.revision)
    if not jobs:
        st.caption("No job has trained on this episode.")
        return
    with st.container(horizontal=True):
        for job in jobs:
            result = f" → {job.model_version}" if job.model_version else ""
            st.page_link(
                linked_page("jobs"),
                label=escape_md(f"Trained on by {recipe(job.spec)} {job.spec.base}{result}"),
                icon=":material/model_training:",
                query_params={"job": job.id},
            )


def _tokens(window: TokenWindow, policy_version: str, *, prompt_is_shown: bool) -> None:
    if mismatch := window.mismatch():
        st.error(f"The arrays are not parallel: {escape_md(mismatch)}. Do not train on it.", icon=":material/error:")
    hidden = window.prompt_tokens - len(window.prompt_tail)
    if hidden and prompt_is_shown:
        st.caption(f"The first {hidden:,} prompt tokens are not shown.")
    cells = window.cells()
    decoded = token_decoder.decode_tokens(policy_version, [cell.token_id for cell in cells])
    label: str | None = _LABELS[1]
    if decoded is None:
        st.caption(escape_md(f"Ids only: {token_decoder.undecodable_reason(policy_version)}."))
    else:
        cells = with_texts(cells, decoded)
        label = st.segmented_control(
            "Show", _LABELS, default=_LABELS[0], key="tokens_shown", label_visibility="collapsed", required=True
        )
    st.html(markup.token_legend())
    st.html(markup.token_strip(cells, with_text=label != _LABELS[1], with_id=label != _LABELS[0]))
    with st.expander("As a table"):
        _table(cells)


def _table(cells: list[TokenCell]) -> None:
    frame = pl.DataFrame(
        {
            "position": [cell.position for cell in cells],
            "token": [cell.token_id for cell in cells],
            "text": [json.dumps(cell.text, ensure_ascii=False)[1:-1] for cell in cells],
            "part": [cell.role for cell in cells],
            "in_loss": [cell.role == "sampled" for cell in cells],
            "logprob": [cell.logprob for cell in cells],
        },
        schema={
            "position": pl.Int64,
            "token": pl.Int64,
            "text": pl.String,
            "part": pl.String,
            "in_loss": pl.Boolean,
            "logprob": pl.Float64,
        },
    )
    tables.show(
        frame.with_columns(pl.col("logprob").exp().alias("probability")),
        {
            "in_loss": tables.text_column("in the loss"),
            "logprob": tables.number_column(form=".4f"),
            "probability": tables.number_column(form=".4f"),
        },
    )


def _row_table(rows: pl.DataFrame) -> None:
    columns = rows.select(
        "row_number",
        pl.format("{} to {}", "first_step", "last_step").alias("steps"),
        "row_start",
        "prompt_tokens",
        "response_tokens",
        "trained_tokens",
        "reward",
        tables.yes_no("is_trainable"),
        pl.col("untrainable_reason").cast(pl.String).replace({"": DASH}),
        "policy_version",
    )
    tables.show(
        columns,
        {
            "row_number": tables.number_column("row", width=50),
            "steps": tables.text_column(width=80),
            "row_start": tables.text_column("begins because", help="Why a new row begins here", width=130),
            "prompt_tokens": tables.number_column("prompt"),
            "response_tokens": tables.number_column("response"),
            "trained_tokens": tables.number_column("in the loss"),
            "reward": tables.number_column(form="+.2f"),
            "is_trainable": tables.text_column("trainable"),
            "untrainable_reason": tables.text_column("why not"),
            "policy_version": tables.text_column("policy"),
        },
    )
