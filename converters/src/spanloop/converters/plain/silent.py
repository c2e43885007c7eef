"""Model calls of which nobody recorded what was said: an instrumentor without content, or one told to leave it out.

Invariant: the same steps as ``steps`` makes of them. Calls of one agent in one trace follow one another, and that is
all there is to tell; none of them ends its episode, and none may be trained on.
"""

import numpy as np
import numpy.typing as npt
import polars as pl

from ..rows import NO_ACTION
from .lanes import UNFINISHED


def can_be_silent(calls: pl.DataFrame) -> npt.NDArray[np.bool_]:
    """Whether nothing else is unusual in each of ``calls``."""
    has_broken_off = pl.col("finish_reason").is_in(list(UNFINISHED)) | (
        pl.col("streams") & (pl.col("finish_reason") == "")
    )
    return calls.select(~has_broken_off & pl.col("tools").is_not_null()).to_series().to_numpy()


def silent_steps(calls: pl.DataFrame) -> pl.DataFrame:
    """What there is to say of each of ``calls``, in the columns of ``episodes.Plain.calls``."""
    thread = ["trace", "agent"]
    place = pl.col("place")
    found = calls.with_row_index("place").select(
        "finish_reason",
        "capture",
        "is_exact",
        previous=place.shift().over(thread),
        following=place.shift(-1).over(thread),
        first=place.first().over(thread),
    )
    previous = found["previous"]
    is_exact = found["is_exact"]
    return found.select(
        state=pl.lit("[]"),
        next_state=pl.when(pl.col("following").is_null()).then(pl.lit("")).otherwise(pl.lit("[]")),
        is_last=pl.col("following").is_null(),
        first="first",
        action=pl.lit(NO_ACTION),
        tool_results=pl.lit("[]"),
        tool_call_count=pl.lit(0, dtype=pl.UInt32),
        finish_reason="finish_reason",
        is_orphan=pl.lit(value=False),
        continues=pl.col("previous").is_not_null(),
        before=found["capture"].gather(previous),
        is_broken=(is_exact.gather(previous) != is_exact).fill_null(value=False),
    )
