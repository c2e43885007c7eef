"""Tables of an evaluation's figures, and of their differences between two evaluations."""

from typing import Final

from spanloop.dashboard.components import tables
from spanloop.dashboard.view_models.formatting import DASH
from spanloop.evaluation.results import Comparison, Evaluation, Figure, Interval, load_figures
from spanloop.store import Store

TITLES: Final = {
    "crashes": "crashed or ran out of time",
    "errors": "with an unrecovered failure",
    "latency_s": "latency (s)",
    "tokens": "tokens",
    "steps": "steps",
    "tool_selection": "tool-selection accuracy",
    "plan_success": "plan success",
    "step_efficiency": "step efficiency",
}
"""Figure → title; success and reward have columns of their own."""
MIN_TASKS: Final = 6
"""The fewest tasks that can show a difference: with five, equal signs of all differences occur by chance in more than
5 % of cases (2 / 2^5), and a bootstrap's interval is too narrow."""
_OWN_COLUMNS: Final = ("success", "reward")
_ERROR: Final = "error:"
_WHOLE: Final = 999.5
"""From here on, three digits would be written with an exponent."""


def show(store: Store, evaluation: Evaluation) -> None:
    """Draw the figures of one evaluation."""
    rows: list[dict[str, object]] = [
        {"figure": title(figure.name), "mean": _with_interval(figure.interval), "tasks": figure.tasks}
        for figure in _shown(load_figures(store, evaluation))
    ]
    if rows:
        tables.show(
            tables.to_frame(rows),
            {
                "figure": tables.text_column(width=200),
                "mean": tables.text_column("mean over tasks, with its interval", width=260),
            },
        )


def show_changes(store: Store, comparison: Comparison) -> None:
    """Draw the figures of both evaluations, and their difference over the tasks of both."""
    before, after = (
        {figure.name: figure.interval for figure in load_figures(store, evaluation)}
        for evaluation in (comparison.before, comparison.after)
    )
    rows: list[dict[str, object]] = [
        {
            "figure": title(figure.name),
            "before": _with_interval(before.get(figure.name)),
            "after": _with_interval(after.get(figure.name)),
            "difference": {
                "text": format(figure.interval.value, number_form(figure.interval, "+")),
                "key": figure.interval.value,
            },
            "interval": range_of_difference(figure.interval, number_form(figure.interval, "+"), tasks=figure.tasks),
            "tasks": figure.tasks,
        }
        for figure in _shown(comparison.figures)
    ]
    if rows:
        tables.show(
            tables.to_frame(rows),
            {
                "figure": tables.text_column(width=200),
                "before": tables.text_column("before, over all its tasks", width=200),
                "after": tables.text_column("after, over all its tasks", width=200),
                "difference": tables.number_column("difference on the tasks of both", width=210),
                "interval": tables.text_column("its interval", width=220),
                "tasks": tables.number_column("tasks of both", form=",.0f", width=80),
            },
        )


def range_of_difference(interval: Interval, form: str, *, tasks: int, scale: float = 1.0, unit: str = "") -> str:
    """Return a difference's interval as text, and that it may be chance; see `Interval.range_text`.

    Args:
        interval: The difference over the tasks.
        form: As for `Interval.range_text`.
        tasks: Number of tasks; below `MIN_TASKS` every difference may be chance.
        scale: As for `Interval.range_text`.
        unit: As for `Interval.range_text`.
    """
    text = f"{interval.range_text(form, scale=scale)}{unit}"
    return text if interval.excludes_zero and tasks >= MIN_TASKS else f"{text}: may be chance"


def title(name: str) -> str:
    """Return what a figure is called on pages."""
    if name.startswith(_ERROR):
        return f"with {name.removeprefix(_ERROR)}"
    return TITLES.get(name, name)


def _shown(figures: tuple[Figure, ...]) -> list[Figure]:
    return [figure for figure in figures if figure.name not in _OWN_COLUMNS]


def _with_interval(interval: Interval | None) -> str:
    if interval is None:
        return DASH
    return interval.text(number_form(interval))


def number_form(interval: Interval, sign: str = "") -> str:
    """Return the format of an interval's numbers: three digits, and whole numbers where one has more."""
    return f"{sign},.0f" if max(map(abs, interval)) >= _WHOLE else f"{sign}.3g"
