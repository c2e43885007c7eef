"""A token row as cells."""

import math
from dataclasses import replace

import pytest

from spanloop.dashboard.components.markup import text_block, token_strip
from spanloop.dashboard.view_models.token_cells import TokenCell, TokenWindow, with_texts

WINDOW = TokenWindow(
    prompt_tokens=5,
    response_tokens=4,
    first_token=0,
    prompt_tail=(1, 2),
    response=(10, 11, 12, 13),
    loss_mask=(1, 1, 0, 1),
    logprobs=(-0.1, -3.0, 0.0, -9.0),
)


def test_roles_positions_and_logprobs_line_up() -> None:
    cells = WINDOW.cells()
    assert [(cell.position, cell.token_id, cell.role) for cell in cells] == [
        (-2, 1, "prompt"),
        (-1, 2, "prompt"),
        (0, 10, "sampled"),
        (1, 11, "sampled"),
        (2, 12, "given"),
        (3, 13, "sampled"),
    ]
    assert [cell.logprob for cell in cells] == [None, None, -0.1, -3.0, None, -9.0]


def test_what_a_step_sampled_that_is_not_trained_on_was_not_given() -> None:
    untrained = replace(WINDOW, loss_mask=(0, 0, 0, 1), sampled=(True, True, False, True))
    assert [cell.role for cell in untrained.cells()[2:]] == ["left out", "left out", "given", "sampled"]
    assert token_strip(untrained.cells()) != token_strip(replace(untrained, sampled=()).cells())


def test_a_later_window_counts_on() -> None:
    assert [cell.position for cell in replace(WINDOW, first_token=800, prompt_tail=()).cells()] == [800, 801, 802, 803]


def test_surprise_runs_from_sure_to_unlikely() -> None:
    surprises = [cell.surprise for cell in WINDOW.cells() if cell.role == "sampled"]
    assert surprises[0] < 0.1
    assert surprises[1:] == [1.0, 1.0]
    assert TokenCell(0, 1, "sampled", math.nan).surprise == 0
    assert TokenCell(0, 1, "sampled", None).surprise == 0


def test_arrays_of_other_lengths_are_named() -> None:
    assert WINDOW.mismatch() == ""
    assert replace(WINDOW, loss_mask=(1,)).mismatch() == "4 tokens, 1 mask, 4 logprobs"
    short = replace(WINDOW, loss_mask=(1,), logprobs=()).cells()
    assert [cell.role for cell in short[2:]] == ["sampled", "given", "given", "given"]
    assert short[2].logprob is None


def test_decoded_text_is_escaped_and_white_space_visible() -> None:
    strip = token_strip([TokenCell(0, 7, "sampled", -0.5, text="<b> \n")])
    assert "&lt;b&gt;·⏎" in strip
    assert "<b>" not in strip


def test_a_long_text_is_cut_and_says_so() -> None:
    shown = text_block("x" * 30, at_most=10)
    assert "xxxxxxxxxx</div>" in shown
    assert "20 more characters" in shown


def test_texts_stand_beside_their_ids() -> None:
    cells = with_texts(WINDOW.cells(), list("abcdef"))
    assert [cell.text for cell in cells] == list("abcdef")
    with pytest.raises(ValueError, match="zip"):
        with_texts(cells, ["too few"])
