"""A selector of the user's decides about the rows that are left; what it gets wrong fails the job by name."""

import sys
from collections.abc import Callable
from types import ModuleType

import polars as pl
import pytest

from spanloop.foundation.errors import JobError
from spanloop.training.dataset.rejections import Rejection
from spanloop.training.dataset.selector import COLUMNS, NamedSelector, Selector, load_selector
from spanloop.training.dataset.tally import Tally

from ..recipe_kinds import KINDS
from ..selection_rows import row, rules, select

ROWS = [row("a", reward=0.0, marks=["x"]), row("b"), row("c", reward=0.5, marks=["x"]), row("d", reward=None)]


def named(function: Callable[[pl.DataFrame], pl.Series]) -> NamedSelector:
    return NamedSelector("mine", function)


def test_it_sees_the_rows_that_are_left_with_the_documented_columns() -> None:
    seen: list[pl.DataFrame] = []

    def keep_marked(rows: pl.DataFrame) -> pl.Series:
        seen.append(rows)
        return rows["marks"].list.contains("x")

    selection = select(ROWS, rules(selector=named(keep_marked)))
    (shown,) = seen
    assert shown.columns == list(COLUMNS)
    assert shown["episode_id"].to_list() == ["a", "b", "c"]
    assert selection.row_tally == Tally(2, {Rejection.NOT_SELECTED: 1, Rejection.NO_REWARD: 1})
    # the baseline is of the episodes that the selector left
    assert dict(selection.rows.select("episode_id", "advantage").rows()) == {"a": -0.25, "c": 0.25}


@pytest.mark.parametrize("kind", list(KINDS))
def test_every_kind_counts_what_it_leaves_out(kind: str) -> None:
    selection = select(ROWS[:3], rules(kind, selector=named(lambda rows: rows["episode_id"] != "c")))
    assert selection.row_tally == Tally(2, {Rejection.NOT_SELECTED: 1})


def test_it_is_not_called_without_rows() -> None:
    selection = select([row(reward=None)], rules(selector=named(lambda _: 1 / 0)))  # type: ignore[arg-type,return-value]
    assert selection.row_tally == Tally(0, {Rejection.NO_REWARD: 1})


BROKEN: list[tuple[Callable[[pl.DataFrame], object], str]] = [
    (lambda _: [True] * 3, "returned list; expected a polars Series of 3 booleans"),
    (lambda rows: rows["reward"], "returned a Series of Float64"),
    (lambda rows: rows["marks"].list.contains("x").head(2), "returned 2 values"),
    (lambda _: pl.Series([True, None, False]), "returned 1 nulls"),
    (lambda rows: rows["nothing"], r"failed over 3 rows, in .*py:\d+: ColumnNotFoundError"),
]


@pytest.mark.parametrize(("function", "message"), BROKEN)
def test_what_is_no_selection_fails_with_its_name(function: Callable[[pl.DataFrame], pl.Series], message: str) -> None:
    with pytest.raises(JobError, match=f"selector 'mine' {message}") as caught:
        select(ROWS, rules(selector=named(function)))
    assert caught.value.next_step


def at_least(rows: pl.DataFrame, tokens: int) -> pl.Series:
    return rows["response_token_ids"].list.len() >= tokens


def raising(rows: pl.DataFrame, by: str) -> pl.Series:
    raise TypeError(by, rows.height)


class Failing(Selector):
    """Raises."""

    message: str = "no"

    def select(self, rows: pl.DataFrame) -> pl.Series:
        raise ValueError(self.message, rows.height)


def test_a_callable_and_a_class_have_typed_options(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("own_selections")
    module.__dict__.update({"at_least": at_least, "Failing": Failing, "raising": raising})
    monkeypatch.setitem(sys.modules, "own_selections", module)
    few, many = (load_selector(f"own_selections:at_least:tokens={number}") for number in (1, 1_000))
    assert few.name == "own_selections:at_least"
    assert select(ROWS[:3], rules(selector=few)).row_tally == Tally(3, {})
    assert select(ROWS[:3], rules(selector=many)).row_tally == Tally(0, {Rejection.NOT_SELECTED: 3})
    failing = load_selector("own_selections:Failing:message=gone")
    with pytest.raises(JobError, match=rf"failed over 3 rows, in {__file__}:\d+: ValueError: \('gone', 3\)"):
        select(ROWS, rules(selector=failing))
    with pytest.raises(JobError, match=rf"in {__file__}:\d+: TypeError"):
        select(ROWS, rules(selector=load_selector("own_selections:raising:by=x")))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nobody", "No selection is called 'nobody'"),
        ("no_such_module:f", "cannot be imported"),
        ("own_selections:NUMBER", "is int, expected a callable or a subclass of Selector"),
        ("own_selections:at_least:tokns=3", "there is no option 'tokns' .got '3'.; did you mean 'tokens'"),
        ("own_selections:at_least:tokens=few", "option 'tokens' is 'few', expected a valid integer"),
        ("own_selections:at_least", "option 'tokens' is required"),
    ],
)
def test_a_selector_that_cannot_be_loaded_fails_the_job(
    name: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("own_selections")
    module.__dict__.update({"NUMBER": 3, "at_least": at_least})
    monkeypatch.setitem(sys.modules, "own_selections", module)
    with pytest.raises(JobError, match=message) as caught:
        load_selector(name)
    assert caught.value.next_step
