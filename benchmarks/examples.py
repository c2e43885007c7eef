"""What the example agents learn from their own attempts: success on held-out tasks before and after, paired by task.

    python benchmarks/examples.py [sql math countdown] [--seeds 3] [--first-seed 0] [--folder FOLDER]
        [--other-tasks NAME=FILE]

For each example and seed: ``tasks.py`` writes the tasks; SmolLM2-135M attempts the test tasks, and the training tasks
four times each unless the job trains on demonstrations alone; the example's ``job.toml`` is trained; the new version
attempts the test tasks. An example with a ``demonstrations.toml`` trains that first, and the version that it makes
attempts the training tasks. Both versions of example NAME attempt the other tasks of FILE too, whose ids start with
the file's stem; nothing is trained on them. These are the commands of the example's README. Test tasks share no values
with training tasks.

A seed has its own tasks and its own folder. An interval is the 95 % bootstrap interval over the tasks of all seeds.
The same command continues a run that was stopped; a seed with a result is not run again. A seed takes about
twenty minutes on two cores.

The last line is ``ratio sql=… math=… countdown=…``: the gain of each example in points.
"""

import argparse
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from experiments.agent_runner import AgentRun, ExampleAgent
from experiments.experiment import Experiment
from experiments.finished_stages import FinishedStages

from spanloop.cli.console import err
from spanloop.demo.stages import StageDisplay
from spanloop.evaluation.results import load_episodes, load_evaluation
from spanloop.evaluation.results.bootstrap import Interval, bootstrap_mean
from spanloop.foundation.paths import DataDir
from spanloop.runtime.services import Ports
from spanloop.runtime.stack import running_stack
from spanloop.store import connect
from spanloop.training.recipes.choices import Tokens
from spanloop.training.recipes.text import RendersText
from spanloop.training.spec.job_file import build_spec, read_job_file

if TYPE_CHECKING:
    from spanloop.store import Store
    from spanloop.training.run.job_api import JobSpec

EXAMPLES = Path(__file__).parents[1] / "examples"
NAMES = ("sql", "math", "countdown")
JOB = "job.toml"
START = "demonstrations.toml"
"""A job on demonstrations, which makes the version that attempts the training tasks."""
DEMONSTRATIONS = "demonstrations.jsonl"
"""Dialogs that ``tasks.py`` writes for it."""
ATTEMPTS = 4
"""Attempts at each training task."""
RESULT = "result.json"


class Evaluations(NamedTuple):
    """Ids of an experiment's evaluations; empty for what it has not."""

    base: str
    trained: str
    start: str
    """After the demonstrations, on the test tasks."""
    other_base: str
    other_trained: str


class Result(NamedTuple):
    """What one seed of an example measured."""

    difficulty: dict[str, str]
    """Test task → difficulty."""
    base: dict[str, float]
    """Test task → success of the base, 0 or 1."""
    trained: dict[str, float]
    """The same of the version that the job made."""
    seconds: dict[str, float]
    """Stage → duration."""
    start: dict[str, float] | None = None
    """The same of the version that demonstrations made, which the job starts from; None without demonstrations."""
    other_base: dict[str, float] | None = None
    """The base's success on the other tasks; None without any."""
    other_trained: dict[str, float] | None = None


def main() -> None:
    """Run the seeds that have no result yet, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    # argparse compares the default of no names with the choices, too
    parser.add_argument("names", nargs="*", choices=(*NAMES, NAMES), default=NAMES, metavar="NAME", help="default: all")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds; default: %(default)s")
    parser.add_argument("--first-seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument("--folder", type=Path, default=cache / "spanloop" / "examples", help="default: %(default)s")
    parser.add_argument("--source", default="smollm2", help="the base model, as for spanloop models add")
    parser.add_argument("--other-tasks", action="append", default=[], metavar="NAME=FILE", help="default: none")
    arguments = parser.parse_args()
    other_tasks: dict[str, str] = dict(each.split("=", 1) for each in arguments.other_tasks)
    results: dict[str, list[Result]] = {}
    for name in arguments.names:
        for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
            folder = arguments.folder / name / f"seed-{seed}"
            if not (folder / RESULT).exists():
                other = Path(other_tasks[name]).absolute() if name in other_tasks else None
                run_seed(name, folder, seed, arguments.source, other)
            results.setdefault(name, []).append(Result(**json.loads((folder / RESULT).read_text())))
    print_table(results)


def run_seed(name: str, folder: Path, seed: int, source: str, other_tasks: Path | None) -> None:
    """Run the unfinished stages of one seed, and write its result."""
    agent = ExampleAgent(name, EXAMPLES / name)
    data_dir = DataDir(folder).open()
    tasks = data_dir.path / "demo"
    spec = job(agent.folder / JOB, tasks, seed)
    settings = {"source": source, "attempts": ATTEMPTS, "job": spec.model_dump(mode="json")}
    start = None
    if (agent.folder / START).exists():
        start = job(agent.folder / START, tasks, seed)
        settings["start"] = start.model_dump(mode="json")
    finished = FinishedStages(tasks / "done.json", settings)
    stages = StageDisplay()
    err.print(f"{name}, seed {seed}: {data_dir.path}", markup=False)
    with running_stack(data_dir, Ports.free(), stages.progress, dashboard=False, pipeline=False):
        experiment = Experiment(data_dir, finished, stages, agent, seed=seed)
        evaluations = learn(experiment, start, spec, source, other_tasks)
        with connect(data_dir) as store:
            success = {version: successes(store, each) for version, each in evaluations._asdict().items() if each}
    difficulty = difficulties(experiment.tasks_folder / agent.test)
    result = Result(difficulty=difficulty, seconds=finished.seconds, **success)
    (folder / RESULT).write_text(json.dumps(result._asdict()))


def job(path: Path, tasks: Path, seed: int) -> "JobSpec":
    """Return the job of a file, whose demonstrations are in the folder ``tasks``."""
    settings: dict[str, Any] = read_job_file(path) | {"seed": seed}
    if settings.get("tokens") == "none" or "dialogs" in settings:
        settings["dialogs"] = [str(tasks / DEMONSTRATIONS)]
    return build_spec(settings, where=str(path))


def learn(
    experiment: Experiment, start: "JobSpec | None", spec: "JobSpec", source: str, other_tasks: Path | None
) -> Evaluations:
    """Evaluate, train on demonstrations, collect, train and evaluate."""
    agent = experiment.agent
    version = base = experiment.add_model(source)
    experiment.make_tasks()
    before = experiment.evaluate(base)
    other_before = experiment.evaluate(base, other_tasks) if other_tasks else ""
    after_start = ""
    if start:
        version = experiment.train("start", f"verl trains {base} with {agent.name}/{START}", start)
        after_start = experiment.evaluate(version)
    if not isinstance(spec.recipe, RendersText) or spec.recipe.tokens is not Tokens.NONE:
        run = AgentRun(agent.train, ATTEMPTS)
        experiment.collect("collect", f"{version} attempts the training tasks", run, version=version)
    trained = experiment.train("train", f"verl trains {version} with {agent.name}/{JOB}", spec)
    after = experiment.evaluate(trained)
    other_after = experiment.evaluate(trained, other_tasks) if other_tasks else ""
    return Evaluations(before, after, after_start, other_before, other_after)


def difficulties(tasks: Path) -> dict[str, str]:
    """Return the difficulty of each task of a file."""
    rows = [json.loads(line) for line in tasks.read_text(encoding="utf-8").splitlines()]
    return {row["id"]: str(row["difficulty"]) for row in rows}


def successes(store: "Store", evaluation: str) -> dict[str, float]:
    """Return the success of each test task; an attempt without a result is a failure."""
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
    print(
        "| example | test tasks by seed | base | trained | gain, points [95 %] | minutes |\n|---|---|---|---|---|---|"
    )
    gains: dict[str, str] = {}
    for name, measured in results.items():
        minutes = ", ".join(f"{sum(each.seconds.values()) / 60:.1f}" for each in measured)
        gains[name] = _print_row(name, measured, [list(each.difficulty) for each in measured], minutes)
        for difficulty in sorted({value for each in measured for value in each.difficulty.values()}):
            tasks = [[task for task, value in each.difficulty.items() if value == difficulty] for each in measured]
            _print_row(f"{name}, {difficulty}", measured, tasks, "")
        started = [each._replace(base=each.start) for each in measured if each.start]
        if started:
            _print_row(f"{name}, from {START}", started, [list(each.difficulty) for each in started], "")
        other = [
            each._replace(base=each.other_base, trained=each.other_trained)
            for each in measured
            if each.other_base and each.other_trained
        ]
        if other:
            _print_row(f"{name}, other tasks", other, [list(each.base) for each in other], "")
    print("\nratio " + " ".join(f"{name}={value}" for name, value in gains.items()))


def _print_row(title: str, results: list[Result], tasks: list[list[str]], minutes: str) -> str:
    counts = ", ".join(str(len(chosen)) for chosen in tasks)
    base, trained = (
        ", ".join(
            f"{sum(success.get(task, 0.0) for task in chosen) / max(len(chosen), 1):.0%}"
            for success, chosen in zip(versions, tasks, strict=True)
        )
        for versions in ([each.base for each in results], [each.trained for each in results])
    )
    value, low, high = (f"{each * 100:+.1f}" for each in gain(results, tasks))
    print(f"| {title} | {counts} | {base} | {trained} | {value} [{low}, {high}] | {minutes} |")
    return value


if __name__ == "__main__":
    main()
