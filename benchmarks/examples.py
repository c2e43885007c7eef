"""What the example agents learn in the loop of their ``app.toml``: success on held-out tasks before and after it.

    python benchmarks/examples.py [sql math countdown lake patient apps werewolves] [--seeds 3] [--first-seed 0]
        [--folder FOLDER] [--results FOLDER] [--other NAME=FILE.toml] [--table]

For each example and seed: ``tasks.py`` writes the tasks, and ``spanloop loop`` runs as many rounds as the file has
trainings, each with SmolLM2-135M and the seed. Compared are the base and the last version that was trained, whatever
the promotion rule decided, on the test tasks of the file; these share no value with the training tasks. ``--other``
names a file with a table of ``[evaluation]``'s options that differ, such as tasks on another database: both versions
attempt these too, and nothing is trained on them.

A seed has its own tasks and its own folder. An interval is the 95 % bootstrap interval of the paired difference over
the tasks of all seeds; an example whose interval is not above zero is "not learned", and one without a result "not
measured". Ctrl-C or a kill ends a sitting: the same command continues in the round and step where it stopped, and a
seed with a result is not run again. Results are kept in ``benchmarks/example_results``, one file for each seed, so that
another machine goes on with the next seed. ``--table`` runs nothing. A seed takes about half an hour on two cores.

The last line is ``ratio sql=… math=…``: the gain of each example in points, or - where it was not measured.
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from spanloop.cli.console import err
from spanloop.cli.learning.loop import run_file
from spanloop.cli.learning.loop_display import LoopDisplay
from spanloop.evaluation.results import load_episodes, load_evaluation
from spanloop.evaluation.results.bootstrap import Interval, bootstrap_mean
from spanloop.foundation.paths import DataDir
from spanloop.foundation.settings import Evaluation, Promotion
from spanloop.runtime.services import Ports
from spanloop.runtime.stack import running_stack
from spanloop.store import connect
from spanloop.training.loop.app_file import read_app
from spanloop.training.loop.budget import Budget, Spent
from spanloop.training.loop.gated_agent import AttemptGate
from spanloop.training.loop.loop import LoopOrder
from spanloop.training.loop.rounds import StepName
from spanloop.training.loop.steps import StepContext, measure
from spanloop.training.models.registry import Registry

if TYPE_CHECKING:
    from spanloop.store import Store
    from spanloop.training.loop.rounds import LoopRound

EXAMPLES = Path(__file__).parents[1] / "examples"
NAMES = ("sql", "math", "countdown", "lake", "patient", "apps", "werewolves")
RESULTS = Path(__file__).parent / "example_results"
APP = "app.toml"


class Result(NamedTuple):
    """What one seed of an example measured."""

    difficulty: dict[str, str]
    """Test task → difficulty."""
    base: dict[str, float]
    """Test task → success of the base, 0 or 1."""
    trained: dict[str, float]
    """The same of the last version that was trained."""
    seconds: float
    """The duration of all steps."""
    date: str
    """The day on which it ended, in UTC."""
    other_base: dict[str, float] | None = None
    """The base's success on other tasks; None without any."""
    other_trained: dict[str, float] | None = None
    other_difficulty: dict[str, str] | None = None


def main() -> None:
    """Run the seeds that have no result yet, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    # argparse compares the default of no names with the choices, too
    parser.add_argument("names", nargs="*", choices=(*NAMES, NAMES), default=NAMES, metavar="NAME", help="default: all")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds; default: %(default)s")
    parser.add_argument("--first-seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument("--folder", type=Path, default=cache / "spanloop" / "examples", help="default: %(default)s")
    parser.add_argument("--results", type=Path, default=RESULTS, help="default: %(default)s")
    parser.add_argument("--other", action="append", default=[], metavar="NAME=FILE", help="default: none")
    parser.add_argument("--table", action="store_true", help="print the table of what was measured, and run nothing")
    arguments = parser.parse_args()
    other: dict[str, str] = dict(each.split("=", 1) for each in arguments.other)
    results: dict[str, list[Result]] = {name: [] for name in arguments.names}
    for name in arguments.names:
        for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
            path = arguments.results / f"{name}-seed-{seed}.json"
            if not path.exists() and not arguments.table:
                folder = arguments.folder.absolute() / name / f"seed-{seed}"
                result = run_seed(name, folder, seed, Path(other[name]) if name in other else None)
                write_result(path, result)
            if path.exists():
                results[name].append(Result(**json.loads(path.read_text())))
    print_table(results)


def run_seed(name: str, folder: Path, seed: int, other: Path | None) -> Result:
    """Run the loop of one seed, or the rest of it, and return its result."""
    data_dir = DataDir(folder).open()
    app = prepare(name, folder / "app", seed)
    err.print(f"{name}, seed {seed}: {folder}", markup=False)
    with (
        err.status("the services start") as spinner,
        running_stack(data_dir, Ports.free(), spinner.update, dashboard=False, pipeline=False),
    ):
        spinner.stop()
        end = run_file(data_dir, app, LoopOrder(len(tomllib.loads(app.read_text())["train"])))
        assert end is not None  # this is no dry run
        with connect(data_dir) as store:
            result = result_of(store, end.rounds, app.with_name("test.jsonl"))
            if other is not None:
                result = result._replace(**measure_other(data_dir, store, app, end.rounds, other))
    return result


def write_result(path: Path, result: Result) -> None:
    """Write the result of a seed, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(json.dumps(result._asdict()) + "\n")
    partial.replace(path)


def prepare(name: str, folder: Path, seed: int) -> Path:
    """Copy an example into a folder with a seed, and write its tasks, unless it is there; return its file."""
    app = folder / APP
    if not app.exists():
        folder.mkdir(parents=True, exist_ok=True)
        for path in (EXAMPLES / name).glob("*.py"):
            shutil.copy(path, folder)
        subprocess.run([sys.executable, "tasks.py", ".", "--seed", str(seed)], cwd=folder, check=True)
        text = (EXAMPLES / name / APP).read_text(encoding="utf-8")
        app.write_text(re.sub(r"(?m)^seed = \d+", f"seed = {seed}", text), encoding="utf-8")
    return app


def result_of(store: "Store", rounds: "tuple[LoopRound, ...]", tasks: Path) -> Result:
    """Return what the rounds of a loop measured on the test tasks."""
    evaluations = [(rounds[at].step(name).result or {})["evaluation"] for at, name in ENDS]
    base, trained = (successes(store, str(each)) for each in evaluations)
    today = datetime.now(UTC).date().isoformat()
    return Result(difficulties(tasks), base, trained, sum(each.seconds for each in rounds), today)


ENDS = ((0, StepName.MEASURE), (-1, StepName.TEST))
"""The base is measured in the first round, the last version is tested in the last one."""


def measure_other(
    data_dir: DataDir, store: "Store", file: Path, rounds: "tuple[LoopRound, ...]", other: Path
) -> dict[str, Any]:
    """Let both versions attempt other tasks; return the fields of the result."""
    options: dict[str, Any] = tomllib.loads(other.read_text(encoding="utf-8"))
    app = read_app(file)
    evaluation = Evaluation.model_validate(app.evaluation.model_dump() | options)
    app = app.model_copy(update={"evaluation": evaluation})
    registry, gate = Registry(data_dir), AttemptGate(Budget(), data_dir, Spent())
    with contextlib.chdir(file.parent), LoopDisplay() as display:
        context = StepContext(data_dir, store, app, Promotion(), display, gate)
        versions = (rounds[0].champion, rounds[-1].candidate)
        evaluations = [measure(context, registry.get(version))["evaluation"] for version in versions]
    base, trained = (successes(store, str(each)) for each in evaluations)
    return {"other_base": base, "other_trained": trained, "other_difficulty": difficulties(Path(options["tasks"]))}


def difficulties(tasks: Path) -> dict[str, str]:
    """Return the difficulty of each task of a file."""
    rows = [json.loads(line) for line in tasks.read_text(encoding="utf-8").splitlines()]
    return {row["id"]: str(row["difficulty"]) for row in rows}


def successes(store: "Store", evaluation: str) -> dict[str, float]:
    """Return the success of each task; an attempt without a result is a failure."""
    episodes = load_episodes(store, load_evaluation(store, evaluation))
    return {row["task_id"]: float(row["is_success"] and not row["left_out"]) for row in episodes.to_dicts()}


def gain(results: list[Result], tasks: list[list[str]]) -> Interval:
    """Return the paired difference in success over ``tasks``, which are those of each seed."""
    differences = [
        each.trained.get(task, 0.0) - each.base.get(task, 0.0)
        for each, chosen in zip(results, tasks, strict=True)
        for task in chosen
    ]
    return bootstrap_mean(differences, seed=0)


def print_table(results: dict[str, list[Result]]) -> None:
    """Print success and gain of each example, by difficulty too, and the last line."""
    print("| example | test tasks by seed | base | trained | gain, points [95 %] | | minutes |")
    print("|---|---|---|---|---|---|---|")
    gains: dict[str, str] = {}
    for name, measured in results.items():
        if not measured:
            print(f"| {name} | | | | | not measured | |")
            gains[name] = "-"
            continue
        minutes = ", ".join(f"{each.seconds / 60:.1f}" for each in measured)
        gains[name] = print_row(name, measured, [list(each.difficulty) for each in measured], minutes)
        print_difficulties(name, measured)
        others = [
            Result(each.other_difficulty or {}, each.other_base, each.other_trained, 0.0, each.date)
            for each in measured
            if each.other_base and each.other_trained
        ]
        if others:
            print_row(f"{name}, other tasks", others, [list(each.difficulty) for each in others], "")
            print_difficulties(f"{name}, other tasks", others)
    print("\nratio " + " ".join(f"{name}={value}" for name, value in gains.items()))


def print_difficulties(title: str, results: list[Result]) -> None:
    """Print a row for each difficulty."""
    for difficulty in sorted({value for each in results for value in each.difficulty.values()}):
        tasks = [[task for task, value in each.difficulty.items() if value == difficulty] for each in results]
        print_row(f"{title}, {difficulty}", results, tasks, "")


def print_row(title: str, results: list[Result], tasks: list[list[str]], minutes: str) -> str:
    """Print a row about ``tasks``, which are those of each seed; return the gain in points."""
    counts = ", ".join(str(len(chosen)) for chosen in tasks)
    base, trained = (
        ", ".join(
            f"{sum(success.get(task, 0.0) for task in chosen) / max(len(chosen), 1):.0%}"
            for success, chosen in zip(versions, tasks, strict=True)
        )
        for versions in ([each.base for each in results], [each.trained for each in results])
    )
    interval = gain(results, tasks)
    value, low, high = (f"{each * 100:+.1f}" for each in interval)
    verdict = "learned" if interval.low > 0 else "not learned"
    print(f"| {title} | {counts} | {base} | {trained} | {value} [{low}, {high}] | {verdict} | {minutes} |")
    return value


if __name__ == "__main__":
    try:
        main()
    except typer.Exit as ended:  # after Ctrl-C
        sys.exit(ended.exit_code)
