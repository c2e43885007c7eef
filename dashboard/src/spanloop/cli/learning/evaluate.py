"""``spanloop evaluate``: measure a model on its stored attempts."""

import re
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from spanloop.runtime.command_line import command_line

from ..console import err
from ..options import DataDirOption, data_directory, exact_version
from .evaluations import print_evaluations, print_figures, print_groups, print_uncounted
from .rejected_records import RejectedRecords

if TYPE_CHECKING:
    from spanloop.evaluation.tasks import Task
    from spanloop.foundation.paths import DataDir
    from spanloop.store import Store

_DIGITS: Final = 8


def evaluate(
    model: Annotated[
        str,
        typer.Argument(
            help="A model as NAME@VERSION or NAME@ALIAS, or NAME for its newest version.",
            show_default="with --run, the run's model",
        ),
    ] = "",
    data_dir: DataDirOption = None,
    run: Annotated[
        list[str] | None, typer.Option(metavar="RUN", help="Only attempts of this run; may be given several times.")
    ] = None,
    tasks: Annotated[
        Path | None,
        typer.Option(help="Only tasks of this file, whose reference_calls are compared with the tool calls."),
    ] = None,
    task_prefix: Annotated[str, typer.Option(help="Only tasks whose id starts with this.")] = "",
    task_id: Annotated[list[str] | None, typer.Option(help="Only this task; may be given several times.")] = None,
    name: Annotated[
        str,
        typer.Option(
            help="Name that compared models share.", show_default="the task prefix, the tasks of the run, or all"
        ),
    ] = "",
    since: Annotated[datetime | None, typer.Option(help="Only attempts from this local time on.")] = None,
    allow_training_tasks: Annotated[
        bool, typer.Option("--allow-training-tasks", help="Let tasks count that the version was trained on.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the bootstrap.")] = 0,
    group_by: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIELD",
            help="Show mean, standard deviation and count by this field of the tasks of --run or --tasks; may be "
            "given several times.",
        ),
    ] = None,
) -> None:
    """Measure a model on its stored attempts, with confidence intervals, and store the result.

    Attempts are those of `spanloop run` and other episodes of the version. One that crashed, ran out of time or has no
    score is a failure. Tasks that the version or its ancestors were trained on do not count. Exit code 1
    when a record of --tasks is no task.

    Example: `spanloop evaluate mine@v3 --run nightly-v3`
    """
    from spanloop.evaluation.results import evaluate as compute_evaluation
    from spanloop.evaluation.results import reference_calls_of
    from spanloop.evaluation.tasks import read_tasks
    from spanloop.foundation.errors import ConfigurationError
    from spanloop.foundation.settings import load_configuration
    from spanloop.store import connect
    from spanloop.training.dataset.trained_tasks import trained_tasks

    directory = data_directory(data_dir)
    runs = run or []
    rejected = RejectedRecords()
    chosen = read_tasks(str(tasks), on_reject=rejected.add) if tasks else []
    if tasks and not chosen:
        raise ConfigurationError(f"{tasks} has no task.", next_step="Name another file, or leave --tasks out.")
    known = chosen or _tasks_of_runs(directory, runs)
    with connect(directory) as store:
        reference = _reference(directory, store, model, runs)
        evaluation = compute_evaluation(
            store,
            name=name or _name(task_prefix, known if runs or chosen else []),
            model=reference,
            trained=trained_tasks(store, directory, reference),
            allow_training_tasks=allow_training_tasks,
            task_prefix=task_prefix,
            task_ids=[*(task_id or ()), *(task.id for task in chosen)],
            since=since.astimezone() if since else None,
            run_ids=runs,
            references=reference_calls_of(known),
            reward_floor=load_configuration(directory.path).promotion.reward_range[0],
            seed=seed,
        )
        print_evaluations([evaluation])
        print_figures(store, evaluation)
        for field in group_by or ():
            print_groups(store, evaluation, known, field)
    print_uncounted(evaluation)
    rejected.report("evaluated")
    err.print(f"more: {command_line(f'evaluations show {evaluation.evaluation_id}', directory)}", markup=False)
    rejected.exit_if_any()


def _reference(directory: "DataDir", store: "Store", model: str, runs: list[str]) -> str:
    """Return the exact version; a model that is not registered keeps its name."""
    from spanloop.training.models.registry import Registry

    if not model and runs:
        made_by = store.query("attempt_runs", run_id=runs[0])["model"].to_list()
        if not made_by:
            raise typer.BadParameter(f"no attempt of run {runs[0]!r} is stored", param_hint="--run")
        return str(made_by[0])
    if not model:
        raise typer.BadParameter("name a model, or a run with --run")
    if runs or "@" in model:
        return exact_version(directory, model)
    return Registry(directory).get(model).reference


def _tasks_of_runs(directory: "DataDir", runs: list[str]) -> "list[Task]":
    from spanloop.evaluation.runner.stored_tasks import tasks_of_run

    return [task for run in runs for task in tasks_of_run(directory.runs / run)]


def _name(task_prefix: str, tasks: "list[Task]") -> str:
    """Return a name that two versions share when they attempted the same tasks."""
    from hashlib import sha256

    if task_prefix:
        return re.sub(r"^[^A-Za-z0-9]+|[^A-Za-z0-9._-]", "", task_prefix).rstrip("._-") or "all"
    if tasks:
        return f"tasks-{sha256(' '.join(sorted({task.digest for task in tasks})).encode()).hexdigest()[:_DIGITS]}"
    return "all"
