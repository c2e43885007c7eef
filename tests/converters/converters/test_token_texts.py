"""Texts of token ids are read in blocks as JSON would be, or left alone."""

import json

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from spanloop.converters.tokens.token_texts import token_lists, turns
from spanloop.messages.json_values import as_list

IDS = st.lists(st.integers(0, 2**32 - 1), max_size=5)
ODD = st.text(alphabet="0123456789, []-+x\n\t.", max_size=12)


@st.composite
def texts(draw: st.DrawFn) -> list[str | None]:
    """Lists of ids, many of which go on where the one before ended, and other text."""
    found: list[str | None] = []
    ids: list[int] = []
    for _ in range(draw(st.integers(0, 8))):
        kind = draw(st.sampled_from(["longer", "longer", "new", "nested", "odd", "none", "almost"]))
        ids = [*ids, *draw(IDS)] if kind in {"longer", "almost"} else draw(IDS)
        separators = draw(st.sampled_from([(", ", ": "), (",", ":")]))
        whole = json.dumps([ids, [1]] if kind == "nested" else ids, separators=separators)
        if kind == "almost":
            place = draw(st.integers(0, len(whole)))
            whole = whole[:place] + draw(ODD) + whole[place:]
        found.append({"odd": f"[{draw(ODD)}]", "none": None}.get(kind, whole))
    return found


@settings(deadline=None)
@given(texts())
def test_what_is_read_is_what_json_reads(given_texts: list[str | None]) -> None:
    for text, ids in zip(given_texts, token_lists(pl.Series(given_texts, dtype=pl.String)).to_list(), strict=True):
        if ids is not None:
            assert text is not None
            numbers = text.split("]")[0].replace("[", "").split(",")
            assert ids == [int(number) for number in numbers if number]
        elif text is not None:
            try:
                value: object = json.loads(text)
            except ValueError:
                continue
            items = as_list(value) if as_list(value) == value else [""]
            is_plain = all(isinstance(item, int) and 0 <= item < 2**32 for item in items)
            assert not is_plain or text not in {json.dumps(value), json.dumps(value, separators=(",", ":"))}


@st.composite
def conversations(draw: st.DrawFn) -> tuple[list[str | None], list[str | None]]:
    """Prompts and answers; most prompts go on with the answer before them, some with a part of it or something else."""
    prompts, answers = draw(texts()), draw(texts())
    count = min(len(prompts), len(answers))
    ids: list[int] = draw(IDS)
    for place in range(count):
        answer = draw(IDS)
        kind = draw(st.sampled_from(["goes on", "goes on", "answer alone", "part", "odd"]))
        separators = draw(st.sampled_from([(", ", ": "), (",", ":")]))
        if kind != "odd":
            prompts[place], answers[place] = (json.dumps(one, separators=separators) for one in (ids, answer))
        kept = answer[:-1] if kind == "part" else answer
        ids = [*ids, *kept, *([] if kind == "answer alone" else draw(IDS))]
    return prompts[:count], answers[:count]


@settings(deadline=None)
@given(conversations())
def test_answers_that_prompts_repeat_are_read_as_by_themselves(
    given_texts: tuple[list[str | None], list[str | None]],
) -> None:
    prompts, answers = (pl.Series(one, dtype=pl.String) for one in given_texts)
    found = turns(prompts, answers)
    for own, texts_alone in zip(found, (prompts, answers), strict=True):
        assert own.to_list() == token_lists(texts_alone).to_list()


def test_one_bad_text_costs_its_own_list_and_those_that_go_on_from_it() -> None:
    given_texts = [json.dumps(list(range(number + 1))) for number in range(300)]
    given_texts[150] = "[0, oops]"
    given_texts[151] = "[0, oops, 1]"
    found = token_lists(pl.Series(given_texts)).to_list()
    assert [number for number, ids in enumerate(found) if ids is None] == [150, 151]
    assert found[299] == list(range(300))


def test_numbers_of_more_than_32_bits_are_left_alone() -> None:
    assert token_lists(pl.Series(["[4294967295]", "[4294967296]", "[99999999999999999999]"])).to_list() == [
        [4294967295],
        None,
        None,
    ]
