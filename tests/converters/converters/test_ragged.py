"""Texts that are views of one another's bytes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanloop.converters.ragged import lines, pieces

TEXTS = st.lists(
    st.text(st.characters(blacklist_characters="\n", blacklist_categories=["Cs"]), max_size=20), max_size=8
)


@given(TEXTS, st.integers(1, 4))
def test_lines_are_what_split_says(texts: list[str], size: int) -> None:
    blocks = ["".join(f"{text}\n" for text in texts[at : at + size]).encode() for at in range(0, len(texts), size)]
    assert lines(blocks).to_list() == texts


@pytest.mark.parametrize("far", [2**31, 10])
def test_pieces_may_overlap_and_be_empty(far: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spanloop.converters.ragged._FAR", far)
    data = "a é long enough text to be a view".encode()
    starts, sizes = np.array([0, 0, 5, 30, 0]), np.array([0, len(data), 20, 4, 12])
    expected = [data[start : start + size].decode() for start, size in zip(starts, sizes, strict=True)]
    found = pieces(data, starts, sizes)
    assert found.to_list() == expected
    assert (found + "]").to_list() == [f"{text}]" for text in expected]
    assert found.gather([4, 1]).to_list() == [expected[4], expected[1]]
