"""A selection: of rows with equal responses train on the first one only."""

import polars as pl


def one_for_each_answer(rows: pl.DataFrame) -> pl.Series:
    """Keep the earliest row of each response."""
    started_first = rows.with_row_index().sort("started_at", "index")
    kept = started_first.unique("response_token_ids", keep="first")["index"]
    return rows.with_row_index()["index"].is_in(kept.implode())
