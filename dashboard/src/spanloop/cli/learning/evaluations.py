"""``spanloop evaluations``: list, show and compare stored evaluations."""

from typing import TYPE_CHECKING, Annotated

import typer

from spanloop.runtime.command_line import command_line

from ..console import err, out, print_table
from ..options import DataDirOption, data_directory

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from contextlib import AbstractContextManager

    from spanloop.evaluation.results import Comparison, EpisodePair, Evaluation
    from spanloop.evaluation.tasks import Task
    from spanloop.foundation.paths import DataDir
    from spanloop.store import Store

app = typer.Typer(help="List, show and compare evaluations.", no_args_is_help=True)

EvaluationArgument = Annotated[str, typer.Argument(metavar="ID", help="An evaluation's id, as listed.")]

_SHOWN_PAIRS = 10
_OWN_COLUMNS = ("success", "reward")
"""Figures that have columns of their own."""


@app.command("list")
def list_evaluations(data_dir: DataDirOption = None) -> None:
    """List every stored evaluation.

    Example: `spanloop evaluations list`
    """
    from spanloop.evaluation.results import load_evaluations

    directory = data_directory(data_dir)
    with _store(directory) as store:
        evaluations = load_evaluations(store)
    if not evaluations:
        err.print(f"no evaluations yet; run: {command_line('evaluate NAME@VERSION', directory)}", markup=False)
        return
    print_evaluations(evaluations)


@app.command()
def show(evaluation: EvaluationArgument, data_dir: DataDirOption = None) -> None:
    """Show one evaluation: success, reward, tools and failures.

    Example: `spanloop evaluations show test:smol@v2`
    """
    from spanloop.evaluation.results import load_errors, load_evaluation, load_tools

    with _store(data_directory(data_dir)) as store:
        loaded = load_evaluation(store, evaluation)
        tools, errors = load_tools(store, loaded), load_errors(store, loaded)
        print_evaluations([loaded])
        print_figures(store, loaded)
    print_uncounted(loaded)
    out.print(f"{loaded.task_set}; computed {loaded.created_at:%Y-%m-%d %H:%M} UTC; seed {loaded.seed}", markup=False)
    if tools:
        out.print()
        print_table(
            ("tool", "calls", "failed", "episodes", "success"),
            (
                (each.tool, *map(str, (each.calls, each.failed_calls, each.episodes)), _percent(each.success))
                for each in tools
            ),
            numbers=("calls", "failed", "episodes", "success"),
        )
    if errors:
        out.print()
        print_table(
            ("unrecovered failure", "episodes", "of all", "decided"),
            (
                (each.error_class, str(each.episodes), _percent(each.episodes / loaded.episodes), str(each.decided))
                for each in errors
            ),
            numbers=("episodes", "of all", "decided"),
        )


@app.command()
def compare(
    before: Annotated[str, typer.Argument(help="Id of the earlier evaluation.")],
    after: Annotated[str, typer.Argument(help="Id of the later evaluation.")],
    data_dir: DataDirOption = None,
) -> None:
    """Compare two evaluations by task, by tool and by failure class.

    Example: `spanloop evaluations compare test:smol@v1 test:smol@v2`
    """
    from spanloop.evaluation.results import compare as compare_stored

    with _store(data_directory(data_dir)) as store:
        comparison = compare_stored(store, before, after)
    print_evaluations([comparison.before, comparison.after])
    out.print()
    print_table(
        (f"difference over {comparison.tasks} common tasks", "", f"{comparison.after.level:.0%} interval"),
        (
            (
                "success",
                f"{100 * comparison.success.value:+.1f} points",
                comparison.success.range_text("+.1f", scale=100),
            ),
            ("reward", f"{comparison.reward.value:+.3f}", comparison.reward.range_text("+.3f")),
        ),
        numbers=("",),
    )
    _print_figure_changes(comparison)
    _print_changes(comparison)
    _print_pairs("failed before and succeed now", comparison.mended)
    _print_pairs("succeeded before and fail now", comparison.broken)


def _print_figure_changes(comparison: "Comparison") -> None:
    others = [each for each in comparison.figures if each.name not in _OWN_COLUMNS and each.interval != (0, 0, 0)]
    if others:
        out.print()
        print_table(
            ("figure", "difference", f"{comparison.after.level:.0%} interval", "tasks"),
            [
                (each.name, f"{each.interval.value:+.3g}", each.interval.range_text("+.3g"), str(each.tasks))
                for each in others
            ],
            numbers=("difference", "tasks"),
        )


def print_figures(store: "Store", evaluation: "Evaluation") -> None:
    """Print what an evaluation measured besides success and reward."""
    from spanloop.evaluation.results import load_figures

    figures = [each for each in load_figures(store, evaluation) if each.name not in _OWN_COLUMNS]
    if figures:
        out.print()
        print_table(
            ("figure", "mean", "interval", "tasks"),
            [
                (each.name, f"{each.interval.value:.3g}", each.interval.range_text(".3g"), str(each.tasks))
                for each in figures
            ],
            numbers=("mean", "tasks"),
        )


def print_groups(store: "Store", evaluation: "Evaluation", tasks: "Sequence[Task]", field: str) -> None:
    """Print success and reward by the value of a field of the tasks."""
    from spanloop.evaluation.results import group_by_field, load_episodes

    attempts = load_episodes(store, evaluation)
    groups = group_by_field(attempts.filter(attempts["left_out"] == ""), tasks, field)
    out.print()
    print_table(
        (field, "tasks", "attempts", "success", "sd", "reward", "sd of reward"),
        [
            (
                each.value,
                str(each.tasks),
                str(each.attempts),
                _percent(each.success.mean),
                _percent(each.success.deviation),
                f"{each.reward.mean:.3f}",
                "" if each.reward.deviation is None else f"{each.reward.deviation:.3f}",
            )
            for each in groups
        ],
        numbers=("tasks", "attempts", "success", "sd", "reward", "sd of reward"),
    )


def _print_changes(comparison: "Comparison") -> None:
    if comparison.tools:
        out.print()
        print_table(
            ("tool", "calls", "failed", "episodes", "success"),
            (
                (
                    each.tool,
                    _arrow(each.before.calls, each.after.calls),
                    _arrow(each.before.failed_calls, each.after.failed_calls),
                    _arrow(each.before.episodes, each.after.episodes),
                    _arrow(_percent(each.before.success), _percent(each.after.success)),
                )
                for each in comparison.tools
            ),
            numbers=("calls", "failed", "episodes", "success"),
        )
    if comparison.errors:
        out.print()
        print_table(
            ("unrecovered failure", "episodes", "of all"),
            (
                (
                    each.error_class,
                    _arrow(each.before.episodes, each.after.episodes),
                    _arrow(
                        _percent(each.before.episodes / comparison.before.episodes),
                        _percent(each.after.episodes / comparison.after.episodes),
                    ),
                )
                for each in comparison.errors
            ),
            numbers=("episodes", "of all"),
        )


def _print_pairs(change: str, pairs: "Sequence[EpisodePair]") -> None:
    out.print()
    out.print(f"{len(pairs)} tasks {change}", markup=False)
    if pairs:
        print_table(("task", "episode before", "episode after"), pairs[:_SHOWN_PAIRS])
    if len(pairs) > _SHOWN_PAIRS:
        out.print(f"and {len(pairs) - _SHOWN_PAIRS} more", markup=False)


def print_evaluations(evaluations: "Iterable[Evaluation]") -> None:
    """Print a row for each evaluation."""
    print_table(
        ("evaluation", "attempts", "tasks", "success", "interval", "reward", "interval", "left out"),
        (
            (
                each.evaluation_id,
                str(each.episodes),
                str(each.tasks),
                _percent(each.success.value),
                each.success.range_text(".1f", scale=100),
                f"{each.reward.value:.3f}",
                each.reward.range_text(".3f"),
                str(sum(each.left_out.values())),
            )
            for each in evaluations
        ),
        numbers=("attempts", "tasks", "success", "reward", "left out"),
    )


def print_uncounted(evaluation: "Evaluation") -> None:
    """Print which attempts count as failures, which do not count, and that tasks of the training do."""
    failures = {state: count for state, count in evaluation.states.items() if state != "scored"}
    for title, counts in (("failures without a score", failures), ("left out", evaluation.left_out)):
        if counts:
            reasons = ", ".join(f"{reason} {count}" for reason, count in counts.items())
            err.print(f"{title}: {reasons}", markup=False)
    if evaluation.training_tasks:
        err.print(f"{evaluation.training_tasks} of {evaluation.tasks} tasks are of its training", markup=False)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"


def _arrow(before: object, after: object) -> str:
    return f"{before} → {after}"


def _store(directory: "DataDir") -> "AbstractContextManager[Store]":
    from spanloop.store import connect

    return connect(directory)
