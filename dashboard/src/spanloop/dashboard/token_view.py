"""The token rows of an episode: what the trainer will see, token by token."""
# pyright: reportUnknownMemberType=false

from typing import Final

import polars as pl
import streamlit as st
from streamlit.column_config import CheckboxColumn, NumberColumn, TextColumn

from spanloop.dashboard import decoder, markup, reads, tables
from spanloop.dashboard.views.formatting import DASH
from spanloop.dashboard.views.tokens import with_texts
from spanloop.store import Store

_WINDOW: Final = 800
_PROMPT_TAIL: Final = 200


def show(store: Store, head: reads.Episode) -> None:
    """Draw the list of rows, and one row's tokens."""
    rows = reads.trajectories(store, head)
    if rows.is_empty():
        st.info(
            "No token row: the gateway captured no tokens for this episode. Its text can still train SFT.",
            icon=":material/inbox:",
        )
        return
    _rows(rows)
    numbers: list[int] = rows["row_number"].to_list()
    row_number = numbers[0]
    if len(numbers) > 1:
        row_number = st.selectbox("Row", numbers, key="row", width=140)
    length = int(rows.filter(pl.col("row_number") == row_number)["response_tokens"][0])
    first = 0
    if length > _WINDOW:
        starts = list(range(0, length, _WINDOW))
        first = st.selectbox(
            "Tokens", starts, format_func=lambda start: f"{start} to {min(start + _WINDOW, length) - 1}", width=200
        )
    window = reads.token_window(
        store, head, row_number, first_token=first, max_tokens=_WINDOW, prompt_tail=_PROMPT_TAIL if first == 0 else 0
    )
    if window is None:
        return
    if wrong := window.mismatch():
        st.error(f"This row's arrays are not parallel: {wrong}. Do not train on it.", icon=":material/error:")
    if window.prompt_tokens > len(window.prompt_tail) and first == 0:
        st.caption(f"The first {window.prompt_tokens - len(window.prompt_tail)} prompt tokens are not shown.")
    version: str = rows.filter(pl.col("row_number") == row_number)["policy_version"][0]
    cells = window.cells()
    decoded = decoder.texts(version, [cell.token_id for cell in cells])
    if decoded is not None:
        cells = with_texts(cells, decoded)
    st.html(markup.token_legend())
    st.html(markup.token_strip(cells))
    with st.expander("As a table"):
        frame = pl.DataFrame(
            {
                "position": [cell.position for cell in cells],
                "token": [cell.token_id for cell in cells],
                "text": [cell.text for cell in cells],
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


def _rows(rows: pl.DataFrame) -> None:
    shown = rows.select(
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
