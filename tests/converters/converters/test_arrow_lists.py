"""Texts that are views of one another's bytes."""

import subprocess
import sys

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanloop.converters.reading.arrow_lists import flat, lines, list_column, string_views

TEXTS = st.lists(
    st.text(st.characters(blacklist_characters="\n", blacklist_categories=["Cs"]), max_size=20), max_size=8
)


@given(TEXTS, st.integers(1, 4))
def test_lines_are_what_split_says(texts: list[str], size: int) -> None:
    blocks = ["".join(f"{text}\n" for text in texts[at : at + size]).encode() for at in range(0, len(texts), size)]
    assert lines(blocks).to_list() == texts


@pytest.mark.parametrize("far", [2**31, 10])
def test_pieces_may_overlap_and_be_empty(far: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spanloop.converters.reading.arrow_lists._FAR", far)
    data = "a é long enough text to be a view".encode()
    starts, sizes = np.array([0, 0, 5, 30, 0]), np.array([0, len(data), 20, 4, 12])
    expected = [data[start : start + size].decode() for start, size in zip(starts, sizes, strict=True)]
    found = string_views(data, starts, sizes)
    assert found.to_list() == expected
    assert (found + "]").to_list() == [f"{text}]" for text in expected]
    assert found.gather([4, 1]).to_list() == [expected[4], expected[1]]


@given(st.lists(st.lists(st.integers(0, 9), max_size=3), max_size=5), st.integers(0, 5))
def test_lists_are_taken_apart_and_built_again(lists: list[list[int]], begin: int) -> None:
    series = pl.Series(lists, dtype=pl.List(pl.UInt32))[begin:]
    values, offsets = flat(series)
    assert values.tolist() == [value for row in lists[begin:] for value in row]
    assert list_column(values, np.diff(offsets)).to_list() == lists[begin:]


def test_lists_are_read_without_pandas() -> None:
    code = (
        "import sys, polars as pl, numpy as np; from spanloop.converters.reading.arrow_lists import flat, list_column;"
    )
    code += "list_column(flat(pl.Series([[1]]))[0], np.array([1])); print('pandas' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout.strip() == "False"
