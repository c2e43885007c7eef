"""``spanloop evaluate`` and ``spanloop evaluations``: measure a model on its episodes, and compare two models."""

import re
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from spanloop.runtime.command_line import command_line

from .console import err, out, print_table
from .options import DataDirOption, ModelArgument, data_directory

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from contextlib import AbstractContextManager

    from spanloop.datadir import DataDir
    from spanloop.store import Store
    from spanloop.training.evaluation import Comparison, EpisodePair, Evaluation, Interval

app = typer.Typer(help="List, show and compare evaluations.", no_args_is_help=True)

EvaluationArgument = Annotated[str, typer.Argument(metavar="ID", help="An evaluation's id, as listed.")]

_SHOWN_PAIRS = 10


def evaluate(
    model: ModelArgument,
    data_dir: DataDirOption = None,
    task_prefix: Annotated[str, typer.Option(help="Only tasks whose id starts with this.")] = "",
    task_id: Annotated[list[str] | None, typer.Option(help="Only this task; may be given several times.")] = None,
    name: Annotated[
        str, typer.Option(help="Name that compared models share.", show_default="the task prefix, or all")
    ] = "",
    since: Annotated[datetime | None, typer.Option(help="Only episodes from this local time on.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the bootstrap.")] = 0,
) -> None:
    """Compute and store a model's success rate and mean reward on its stored episodes, with confidence intervals.

    Example: `spanloop evaluate smol@v2 --task-prefix test-`
    """
    from spanloop.training.evaluation import evaluate as compute_evaluation
    from spanloop.training.registry import Registry

    directory = data_directory(data_dir)
    reference = model if "@" in model else Registry(directory).get(model).reference
    with _store(directory) as store:
        evaluation = compute_evaluation(
            store,
            name=name or re.sub(r"^[^A-Za-z0-9]+|[^A-Za-z0-9._-]", "", task_prefix).rstrip("._-") or "all",
            model=reference,
            task_prefix=task_prefix,
            task_ids=task_id or (),
            since=since.astimezone() if since else None,
            seed=seed,
        )
    _print_evaluations([evaluation])
    _print_left_out(evaluation)
    err.print(f"more: {command_line(f'evaluations show {evaluation.evaluation_id}', directory)}", markup=False)


@app.command("list")
def list_evaluations(data_dir: DataDirOption = None) -> None:
    """List every stored evaluation.

    Example: `spanloop evaluations list`
    """
    from spanloop.training.evaluation import load_evaluations

    directory = data_directory(data_dir)
    with _store(directory) as store:
        evaluations = load_evaluations(store)
    if not evaluations:
        err.print(f"no evaluations yet; run: {command_line('evaluate NAME@VERSION', directory)}", markup=False)
        return
    _print_evaluations(evaluations)


@app.command()
def show(evaluation: EvaluationArgument, data_dir: DataDirOption = None) -> None:
    """Show one evaluation: success, reward, tools and failures.

    Example: `spanloop evaluations show test:smol@v2`
    """
    from spanloop.training.evaluation import load_errors, load_evaluation, load_tools

    with _store(data_directory(data_dir)) as store:
        loaded = load_evaluation(store, evaluation)
        tools, errors = load_tools(store, loaded), load_errors(store, loaded)
    _print_evaluations([loaded])
    _print_left_out(loaded)
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
    from spanloop.training.evaluation import compare as compare_stored

    with _store(data_directory(data_dir)) as store:
        comparison = compare_stored(store, before, after)
    _print_evaluations([comparison.before, comparison.after])
    out.print()
    print_table(
        (f"difference over {comparison.tasks} common tasks", "", f"{comparison.after.level:.0%} interval"),
        (
            ("success", f"{100 * comparison.success.value:+.1f} points", _range(comparison.success, 100, "+.1f")),
            ("reward", f"{comparison.reward.value:+.3f}", _range(comparison.reward, 1, "+.3f")),
        ),
        numbers=("",),
    )
    _print_changes(comparison)
    _print_pairs("failed before and succeed now", comparison.mended)
    _print_pairs("succeeded before and fail now", comparison.broken)


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


def _print_evaluations(evaluations: "Iterable[Evaluation]") -> None:
    print_table(
        ("evaluation", "episodes", "tasks", "success", "interval", "reward", "interval", "left out"),
        (
            (
                each.evaluation_id,
                str(each.episodes),
                str(each.tasks),
                _percent(each.success.value),
                _range(each.success, 100, ".1f"),
                f"{each.reward.value:.3f}",
                _range(each.reward, 1, ".3f"),
                str(sum(each.left_out.values())),
            )
            for each in evaluations
        ),
        numbers=("episodes", "tasks", "success", "reward", "left out"),
    )


def _print_left_out(evaluation: "Evaluation") -> None:
    if evaluation.left_out:
        reasons = ", ".join(f"{reason} {count}" for reason, count in evaluation.left_out.items())
        err.print(f"left out: {reasons}", markup=False)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"


def _range(interval: "Interval", factor: float, form: str) -> str:
    return f"{factor * interval.low:{form}} to {factor * interval.high:{form}}"


def _arrow(before: object, after: object) -> str:
    return f"{before} → {after}"


def _store(directory: "DataDir") -> "AbstractContextManager[Store]":
    from spanloop.store import connect

    return connect(directory)
