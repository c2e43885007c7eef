# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""List columns out of flat numbers, without a copy: the one module of the converters that knows pyarrow."""

from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa


def ragged(values: npt.NDArray[Any], lengths: npt.NDArray[np.int64]) -> pl.Series:
    """A list column whose rows are the next ``lengths`` of ``values`` each."""
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return pl.Series(pa.LargeListArray.from_arrays(pa.array(offsets, type=pa.int64()), pa.array(values)))
