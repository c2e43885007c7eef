"""Token ids as the trainer sees them: an episode's rows, and the one sampled answer of a single step."""
# pyright: reportUnknownMemberType=false

import json
from typing import Any, Final

import polars as pl
import streamlit as st
from streamlit.column_config import CheckboxColumn, NumberColumn, TextColumn

from spanloop.dashboard.components import markup, tables
from spanloop.dashboard.components.markup import plain
from spanloop.dashboard.queries import episodes as reads
from spanloop.dashboard.queries import provenance
from spanloop.dashboard.queries import token_texts as decoder
from spanloop.dashboard.view_models.formatting import DASH, signed
from spanloop.dashboard.view_models.token_cells import TokenCell, TokenWindow, with_texts
from spanloop.store import Store

_WINDOW: Final = 800
_PROMPT_TAIL: Final = 200
_SHOWN: Final = ("Text", "Ids", "Text and ids")


def rows(store: Store, head: reads.Episode) -> None:
    """Draw the list of the episode's rows, and one row's tokens."""
    found = reads.trajectories(store, head)
    if found.is_empty():
        _none_captured()
        return
    _row_table(found)
    _trainers(head)
    numbers: list[int] = found["row_number"].to_list()
    row_number = numbers[0]
    if len(numbers) > 1:
        row_number = st.selectbox("Row", numbers, key="row", width=140)
    row = found.row(numbers.index(row_number), named=True)
    first = 0
    if row["response_tokens"] > _WINDOW:
        starts = list(range(0, row["response_tokens"], _WINDOW))
        last = row["response_tokens"] - 1
        first = st.selectbox(
            "Tokens", starts, format_func=lambda start: f"{start} to {min(start + _WINDOW - 1, last)}", width=200
        )
    window = reads.token_window(
        store,
        head,
        row_number,
        first_token=first,
        max_tokens=_WINDOW,
        prompt_tail=0 if first else _prompt_tail(row["prompt_tokens"]),
    )
    if window is not None:
        _tokens(window, row["policy_version"], prompt_is_shown=not first)


def transition(store: Store, head: reads.Episode, step: int) -> None:
    """Draw one step: how its answer was sampled, which rows hold it, and its tokens."""
    sizes = reads.transitions(store, head).filter(pl.col("step") == step)
    if sizes.is_empty():
        st.info(f"This episode has no step {step}.", icon=":material/inbox:")
        return
    size = sizes.row(0, named=True)
    st.subheader(f"Step {step}, down to its tokens", anchor=False)
    said = st.container()
    prompt_tail = _prompt_tail(size["prompt_tokens"]) if size["prompt_tokens"] else 0
    found = reads.transition(store, head, step, max_tokens=_WINDOW, prompt_tail=prompt_tail)
    if found is None:
        return
    sampling: dict[str, Any] = found.sampling
    facts = [
        f"sampled by **{plain(found.policy_version)}**" if found.policy_version else "",
        ", ".join(f"{plain(name)} {plain(str(value))}" for name, value in sampling.items()),
        f"reward **{signed(found.reward)}**" if found.reward is not None else "",
        f"finish {plain(found.finish_reason)}" if found.finish_reason else "",
        f"response `{found.response_id}`" if found.response_id else "",
    ]
    with said:
        st.markdown(" · ".join(fact for fact in facts if fact))
        if not found.is_trainable:
            why = ": ".join(part for part in (found.untrainable_reason, found.untrainable_detail) if part)
            st.markdown(f":orange[Not trained on: {plain(why)}]")
        if found.window.response_tokens:
            _holders(store, head, step, size["agent_name"])
            _trainers(head)
    if not found.window.response_tokens:
        _none_captured()
        return
    _tokens(found.window, found.policy_version, prompt_is_shown=True)


def _none_captured() -> None:
    st.info(
        "The gateway captured no tokens here. The text can still train SFT.",
        icon=":material/inbox:",
    )


def _prompt_tail(prompt_tokens: int) -> int:
    if prompt_tokens <= _PROMPT_TAIL:
        return _PROMPT_TAIL
    whole = st.toggle(f"Show the whole prompt ({prompt_tokens:,} tokens)", key="whole_prompt")
    return prompt_tokens if whole else _PROMPT_TAIL


def _holders(store: Store, head: reads.Episode, step: int, agent_name: str) -> None:
    """Which rows the trainer would get the step in."""
    held = reads.trajectories(store, head).filter(
        (pl.col("agent_name") == agent_name) & (pl.col("first_step") <= step) & (pl.col("last_step") >= step)
    )
    for row in held.iter_rows(named=True):
        merged = f"steps {row['first_step']} to {row['last_step']}" if row["last_step"] > row["first_step"] else "alone"
        usable = "it may be trained on" if row["is_trainable"] else f"not trained on: {row['untrainable_reason']}"
        st.caption(f"In token row {row['row_number']} ({merged}); {plain(usable)}.")


def _trainers(head: reads.Episode) -> None:
    jobs = provenance.trained_on(head.episode_id, head.revision)
    if not jobs:
        st.caption("No job has trained on this episode.")
        return
    with st.container(horizontal=True):
        for job in jobs:
            result = f" → {job.model_version}" if job.model_version else ""
            st.page_link(
                "../pages/jobs.py",
                label=f"Trained on by {job.spec.kind} {job.spec.base}{result}",
                icon=":material/model_training:",
                query_params={"job": job.id},
            )


def _tokens(window: TokenWindow, policy_version: str, *, prompt_is_shown: bool) -> None:
    if wrong := window.mismatch():
        st.error(f"The arrays are not parallel: {wrong}. Do not train on it.", icon=":material/error:")
    hidden = window.prompt_tokens - len(window.prompt_tail)
    if hidden and prompt_is_shown:
        st.caption(f"The first {hidden:,} prompt tokens are not shown.")
    cells = window.cells()
    decoded = decoder.texts(policy_version, [cell.token_id for cell in cells])
    shown: str | None = _SHOWN[1]
    if decoded is None:
        st.caption(f"Ids only: {decoder.why_not(policy_version)}.")
    else:
        cells = with_texts(cells, decoded)
        shown = st.segmented_control(
            "Show", _SHOWN, default=_SHOWN[0], key="tokens_shown", label_visibility="collapsed", required=True
        )
    st.html(markup.token_legend())
    st.html(markup.token_strip(cells, with_text=shown != _SHOWN[1], with_id=shown != _SHOWN[0]))
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
            "in_loss": CheckboxColumn("in the loss"),
            "logprob": NumberColumn(format="%.4f"),
            "probability": NumberColumn(format="%.4f"),
        },
    )


def _row_table(found: pl.DataFrame) -> None:
    shown = found.select(
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
        shown,
        {
            "row_number": NumberColumn("row", width=50),
            "steps": TextColumn(width=80),
            "row_start": TextColumn("begins because", help="Why a new row begins here", width=130),
            "prompt_tokens": NumberColumn("prompt"),
            "response_tokens": NumberColumn("response"),
            "trained_tokens": NumberColumn("in the loss"),
            "reward": NumberColumn(format="%+.2f"),
            "is_trainable": TextColumn("trainable"),
            "untrainable_reason": TextColumn("why not"),
            "policy_version": TextColumn("policy"),
        },
    )
