"""``spanloop run`` and ``spanloop runs``: run an agent on tasks, and list what was run."""

import os
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

import typer

from spanloop.runtime.command_line import command_line

from ..console import err, out, print_table, progress_bar
from ..generated_options import GeneratedCommand, GeneratedOption, given_options, section_options
from ..options import DataDirOption, data_directory, exact_version
from .rejected_records import RejectedRecords

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.progress import Progress as ProgressBar

    from spanloop.evaluation.runner.attempt import EndedAttempt
    from spanloop.evaluation.runner.ledger import Counts, Summary
    from spanloop.foundation.paths import DataDir

app = typer.Typer(help="List and show runs of agents on tasks.", no_args_is_help=True)

RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="A run's id, as listed.")]
_ERROR_CHARACTERS: Final = 200
_ENVIRONMENT: Final = "environment_settings__"
"""Begins the names of the generated options that are fields of the environment."""


class RunCommand(GeneratedCommand):
    """A command with one option for each further setting of an evaluation."""

    def generate(self) -> "Iterator[GeneratedOption]":
        """Return an option for each field."""
        from spanloop.foundation.settings import EnvironmentSettings, Evaluation

        yield from section_options(Evaluation, without=("tasks", "agent", "environment_settings"))
        for option in section_options(EnvironmentSettings):
            yield option._replace(name=_ENVIRONMENT + option.name)


def run(
    context: typer.Context,
    tasks: Annotated[
        str,
        typer.Argument(
            metavar="TASKS",
            help="A file of tasks (.jsonl, .csv, .parquet), a dataset's folder, or READER:SOURCE, such as "
            "huggingface:openai/gsm8k.",
        ),
    ],
    agent: Annotated[
        str,
        typer.Option(
            help="A command, started for each attempt, in which {field} is replaced by the task's field; or a Python "
            "callable as MODULE:FUNCTION."
        ),
    ],
    model: Annotated[
        str,
        typer.Option(
            help="The served version, as NAME@VERSION, NAME@ALIAS or NAME.", show_default="what the gateway serves"
        ),
    ] = "",
    run_id: Annotated[
        str, typer.Option("--run", metavar="NAME", help="The run's id; a run that was stopped continues.")
    ] = "",
    base_url: Annotated[
        str, typer.Option(help="An OpenAI-compatible endpoint instead of the gateway.", show_default="the gateway's")
    ] = "",
    instrument: Annotated[
        bool, typer.Option("--instrument/--no-instrument", help="Run the agent under opentelemetry-instrument.")
    ] = True,
    data_dir: DataDirOption = None,
) -> None:
    """Run an agent on tasks: once for each task and attempt, through the gateway, graded and stored.

    The task's fields reach a command as one JSON object on standard input, and a callable as its argument. A run that
    was stopped, by Ctrl-C or by a power cut, continues with the same command and --run. Exit code 1 when a record was
    rejected, a task reader of your own raised, or a grader failed.

    Example: `spanloop run tasks.jsonl --agent "python app.py" --model mine@v3 --attempts 8 --grader exact`
    """
    from spanloop.evaluation.runner.planning import RunRequest, plan_run
    from spanloop.foundation.settings.environment import validated
    from spanloop.store import connect
    from spanloop.training.attempt_pool.pooled_run import run_requested

    sys.path.append(str(Path.cwd()))  # for a reader or grader in a module of the working directory
    given, places = _given(context)
    directory = data_directory(data_dir)
    run_id = run_id or f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{os.urandom(2).hex()}"
    fixed = {
        "run_id": run_id,
        "tasks": tasks,
        "agent": agent,
        "model": exact_version(directory, model) if "@" in model else model,
        "base_url": base_url,
        "is_instrumented": instrument,
    }
    request = validated(RunRequest, fixed | given, places, next_step="spanloop run --help")
    rejected = RejectedRecords()
    with connect(directory) as store, progress_bar() as bar:
        plan = plan_run(directory, request, store, on_reject=rejected.add)
        try:
            summary = run_requested(directory, request, plan, store, progress=_Display(bar), stop=threading.Event())
        except BaseException:
            err.print(f"the same command continues this run with --run {run_id}", markup=False)
            raise
    rejected.report("run")
    left_out = ", ".join(
        f"{count} {reason.replace('_', ' ')}" for reason, count in plan.tasks.selection.left_out.items()
    )
    if left_out:
        err.print(f"tasks of the source that are not chosen: {left_out}", markup=False)
    _print_summary(directory, run_id, summary)
    rejected.exit_if_any()
    if summary.grading_failures:
        raise typer.Exit(1)


def _given(context: typer.Context) -> "tuple[dict[str, Any], dict[str, str]]":
    """Return the values that options gave, by field, and the option of each; those of the environment in one field."""
    from spanloop.evaluation.runner.planning import RunRequest
    from spanloop.foundation.settings import EnvironmentSettings

    given: dict[str, Any] = {}
    places: dict[str, str] = {}
    for key, value in given_options(context).items():
        name = key.removeprefix(_ENVIRONMENT)
        places["environment_settings.name"] = EnvironmentSettings.option("name")
        option = RunRequest.option(name) if name == key else EnvironmentSettings.option(name)
        parsed = _pairs(option, cast("list[str]", value)) if isinstance(value, list) else value
        if name == key:
            given[name], places[name] = parsed, option
        else:
            given.setdefault("environment_settings", {})[name] = parsed
            places[f"environment_settings.{name}"] = option
    return given, places


class _Display:
    """A progress bar on stderr, and a line on stdout for each result."""

    def __init__(self, bar: "ProgressBar") -> None:
        self._bar = bar
        self._task = bar.add_task("attempts", total=None, note="")
        self._done = self._graded = self._successes = 0

    def started(self, counts: "Counts") -> None:
        self._done = counts.done
        self._bar.update(self._task, total=counts.total, completed=counts.done)

    def ended(self, ended: "EndedAttempt") -> None:
        attempt, end, verdict, grading_error = ended
        self._done += 1
        words = [attempt.task.id, f"#{attempt.number}", end.state.value]
        if verdict is not None:
            self._graded += 1
            self._successes += verdict.is_success
            words.append(f"{'success' if verdict.is_success else 'failure'} {verdict.score:g}")
        words.append(f"{end.duration_ms / 1_000:.1f} s")
        problem = grading_error or end.error
        if problem:
            words.append(" ".join(problem.split())[:_ERROR_CHARACTERS])
        out.print("  ".join(words), markup=False)
        note = f"{self._successes} of {self._graded} succeeded" if self._graded else ""
        self._bar.update(self._task, completed=self._done, note=note)

    def note(self, text: str) -> None:
        err.print(text, markup=False)


def _pairs(option: str, texts: "Sequence[str] | None") -> "Mapping[str, str]":
    pairs = [text.partition("=") for text in texts or ()]
    for name, separator, _ in pairs:
        if not (name and separator):
            raise typer.BadParameter(f"expected NAME=VALUE, got {name!r}", param_hint=option)
    return {name: value for name, _, value in pairs}


def _print_summary(directory: "DataDir", run_id: str, summary: "Summary") -> None:
    states = ", ".join(f"{count} {state.replace('_', ' ')}" for state, count in summary.states.items()) or "none"
    rows = [("attempts", f"{summary.attempts}: {states}")]
    if summary.graded:
        rows.append(("success", f"{summary.successes} ({summary.successes / summary.attempts:.1%})"))
        rows.append(
            ("mean reward", f"{summary.score_sum / summary.attempts:.3f}; an attempt without a verdict counts 0")
        )
    if summary.grading_failures:
        rows.append(("not graded", f"{summary.grading_failures}; the same command grades them again"))
    print_table(("run", run_id), rows)
    if summary.states:
        err.print(f"more: {command_line(f'runs show {run_id}', directory)}", markup=False)


@app.command("list")
def list_runs(data_dir: DataDirOption = None) -> None:
    """List the runs with stored results, newest first.

    Example: `spanloop runs list`
    """
    from spanloop.store import connect

    with connect(data_directory(data_dir), start=True) as store:
        runs = store.query("attempt_runs", run_id="").to_dicts()
    if not runs:
        err.print('no runs yet; start one: spanloop run tasks.jsonl --agent "python app.py"', markup=False)
        return
    _print_runs(runs)


@app.command()
def show(run: RunArgument, data_dir: DataDirOption = None) -> None:
    """Show a run, and each of its attempts.

    Example: `spanloop runs show nightly-1`
    """
    from spanloop.foundation.errors import ConfigurationError
    from spanloop.store import connect

    with connect(data_directory(data_dir), start=True) as store:
        runs = store.query("attempt_runs", run_id=run).to_dicts()
        if not runs:
            raise ConfigurationError(f"No result of a run {run!r} is stored.", next_step="See all: spanloop runs list")
        attempts = store.query("attempts_of_run", run_id=run).to_dicts()
    _print_runs(runs)
    out.print()
    print_table(
        ("task", "attempt", "state", "success", "reward", "seconds", "episode", "error"),
        [
            (
                row["task_id"],
                str(row["attempt"]),
                row["state"],
                "" if row["is_success"] is None else "yes" if row["is_success"] else "no",
                "" if row["reward"] is None else f"{row['reward']:g}",
                f"{row['duration_ms'] / 1_000:.1f}",
                row["episode_id"],
                " ".join(row["error"].split())[:_ERROR_CHARACTERS],
            )
            for row in attempts
        ],
        numbers=("attempt", "reward", "seconds"),
    )


def _print_runs(runs: "Sequence[Mapping[str, Any]]") -> None:
    counts = ("tasks", "attempts", "finished", "crashed", "timed_out", "graded")
    print_table(
        ("run", "model", "grader", *(name.replace("_", " ") for name in counts), "success", "reward"),
        [
            (
                run["run_id"],
                run["model"],
                run["grader"],
                *(str(run[name]) for name in counts),
                f"{run['successes'] / run['attempts']:.1%}" if run["graded"] else "",
                f"{run['rewards'] / run['attempts']:.3f}" if run["graded"] else "",
            )
            for run in runs
        ],
        numbers=(*(name.replace("_", " ") for name in counts), "success", "reward"),
    )
