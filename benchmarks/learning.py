"""What each recipe learns from spans: the office agent's success on test tasks before and after it, paired by task.

    python benchmarks/learning.py [--seeds 3] [--first-seed 0] [--claims sft dpo grpo text credit] [--folder FOLDER]

SmolLM2-135M runs the agent of examples/office. The arms of a seed share their collections of attempts at the training
tasks: attempts of the base; attempts of a model after a short SFT, whose success stays below 80 %; attempts of the same
model with tools that fail in a fifth of their calls; and attempts of a scripted expert, which are recorded as another
vendor's model, as text without captured tokens.

| arm | starts from | learns from |
|---|---|---|
| sft | base | the base's successful attempts |
| short sft | base | the same, for fewer steps |
| dpo | short sft | pairs of its better and worse attempts |
| grpo | short sft | all of its attempts |
| text sft | base | the expert's attempts, rendered with the base's chat template |
| broadcast | short sft | its attempts with failing tools; each step has its episode's advantage |
| attributed | short sft | the same; the policy pays only for its own mistakes |

Each version attempts 200 test tasks once, whose wording and values do not occur in training, with working tools. A
seed has its own tasks and its own folder. An interval is the 95 % bootstrap interval over the tasks of all seeds. The
same command continues a run that was stopped. It takes about an hour for a seed on two idle cores, and less with
``--claims``, which leaves out the arms of other claims.

The last line is ``ratio sft=… dpo=… grpo=… text=… credit=…``: the gain of each arm over its start, in points;
``credit`` is attributed minus broadcast.
"""

import argparse
import json
import os
import sys
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from experiments.agent_runner import AgentRun, office_agent
from experiments.experiment import Experiment
from experiments.finished_stages import FinishedStages
from experiments.recipe import Recipe
from learners import expert

from spanloop.cli.console import err
from spanloop.demo.stages import StageDisplay
from spanloop.evaluation.results import load_episodes, load_evaluation
from spanloop.evaluation.results.bootstrap import Interval, bootstrap_mean
from spanloop.foundation.paths import DataDir
from spanloop.runtime.services import Ports
from spanloop.runtime.stack import running_stack
from spanloop.store import connect

SHORT_SFT_STEPS = 4
"""Few enough that success stays below 80 %, so that something is left to learn."""
DPO_LEARNING_RATE = 3e-6
ATTEMPTS = 4
RESULT = "result.json"
FLAKY_AGENT = Path(__file__).parent / "learners" / "flaky_agent.py"

Success = dict[str, dict[str, float]]
"""Arm → test task → success (0 or 1)."""


class Arm(NamedTuple):
    """A version, and the version that it is compared with."""

    name: str
    start: str
    claim: str = ""
    """Name of its gain on the last line; empty for an arm that is only a start or a comparison."""


ARMS = (
    Arm("sft", "base", "sft"),
    Arm("short sft", "base"),
    Arm("dpo", "short sft", "dpo"),
    Arm("grpo", "short sft", "grpo"),
    Arm("text sft", "base", "text"),
    Arm("broadcast", "short sft"),
    Arm("attributed", "short sft"),
    Arm("attributed", "broadcast", "credit"),
)
CLAIMS = tuple(arm.claim for arm in ARMS if arm.claim)


def main() -> None:
    """Run the seeds that have no result yet, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds; default: %(default)s")
    parser.add_argument("--first-seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument("--claims", nargs="+", choices=CLAIMS, default=CLAIMS, help="default: all")
    parser.add_argument("--folder", type=Path, default=cache / "spanloop" / "learning", help="default: %(default)s")
    parser.add_argument("--source", default="smollm2", help="the base model, as for spanloop models add")
    arguments = parser.parse_args()
    results: list[Success] = []
    for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
        folder = arguments.folder / f"seed-{seed}"
        if not set(arguments.claims) <= measured_claims(folder):
            run_seed(folder, Recipe(source=arguments.source, seed=seed), frozenset(arguments.claims))
        results.append(json.loads((folder / RESULT).read_text()))
    print_table(results)


def measured_claims(folder: Path) -> set[str]:
    """Return the claims whose arms a seed's result has."""
    result = folder / RESULT
    measured = json.loads(result.read_text()) if result.exists() else {}
    return {arm.claim for arm in ARMS if arm.name in measured and arm.start in measured} - {""}


def run_seed(folder: Path, recipe: Recipe, claims: frozenset[str]) -> None:
    """Run the unfinished stages of one seed, and write its result."""
    data_dir = DataDir(folder).open()
    settings = {**recipe._asdict(), "short_sft_steps": SHORT_SFT_STEPS, "dpo_learning_rate": DPO_LEARNING_RATE}
    finished = FinishedStages(data_dir.path / "demo" / "done.json", settings)
    stages = StageDisplay()
    err.print(f"seed {recipe.seed}: {data_dir.path}", markup=False)
    with running_stack(data_dir, Ports.free(), stages.progress, dashboard=False, pipeline=False):
        experiment = Experiment(data_dir, finished, stages, office_agent(), seed=recipe.seed)
        versions = run_arms(experiment, recipe, claims)
        with connect(data_dir) as store:
            success = {arm: successes(store, version) for arm, version in versions.items()}
    (folder / RESULT).write_text(json.dumps(success))


def run_arms(experiment: Experiment, recipe: Recipe, claims: frozenset[str]) -> dict[str, str]:
    """Collect, train and evaluate; return the version of each arm that the claims need."""
    base = experiment.add_model(recipe.source)
    experiment.make_tasks(train=recipe.train_tasks, test=recipe.test_tasks)
    versions = {"base": base}

    def learn(arm: str, kind: str, start: str, since: datetime, **changes: Any) -> None:
        spec = recipe.job(kind, start, since, deploy=False, **changes)
        versions[arm] = experiment.train(f"train {arm}", f"{arm}: verl trains {start}", spec)

    def collect(name: str, version: str, script: str = "agent.py") -> datetime:
        run = AgentRun(experiment.agent.train, ATTEMPTS, script=Path(script))
        return experiment.collect(name, f"{version} attempts the training tasks ({name})", run, version=version)

    if claims != {"text"}:
        since = collect("collect base", base)
    if "sft" in claims:
        learn("sft", "sft", base, since)
    if claims & {"dpo", "grpo", "credit"}:
        learn("short sft", "sft", base, since, steps=SHORT_SFT_STEPS)
    if claims & {"dpo", "grpo"}:
        since = collect("collect short sft", versions["short sft"])
        batches = {"steps": recipe.grpo_steps, "batch_groups": recipe.grpo_batch}
        learn("dpo", "dpo", versions["short sft"], since, learning_rate=DPO_LEARNING_RATE, **batches)
        learn("grpo", "dr_grpo", versions["short sft"], since)
    if "credit" in claims:
        since = collect("collect with failing tools", versions["short sft"], str(FLAKY_AGENT))
        learn("broadcast", "dr_grpo", versions["short sft"], since, credit="broadcast")
        learn("attributed", "dr_grpo", versions["short sft"], since, credit="attributed")
    if "text" in claims:
        since = collect_expert(experiment)
        learn("text sft", "sft", base, since, policy_version="", tokens="rendered")
    for version in versions.values():
        experiment.evaluate(version)
    return versions


def collect_expert(experiment: Experiment) -> datetime:
    """Record the expert's attempts; return the time before the first one."""
    sys.path.insert(0, str(experiment.agent.folder))
    from tasks import world  # noqa: PLC0415 - in the agent's folder

    prices, events, companies = world("train")
    known = expert.learn(experiment.tasks_folder / experiment.agent.train, [*prices, *events, *companies])
    with expert.serving_expert(known) as url:
        run = AgentRun(experiment.agent.train, base_url=url, model=expert.NAME)
        return experiment.collect("collect expert", "the scripted expert attempts the training tasks", run)


def successes(store: Any, version: str) -> dict[str, float]:
    """Return the success of each test task; an attempt without a result is a failure."""
    episodes = load_episodes(store, load_evaluation(store, f"{office_agent().name}:{version}"))
    return {row["task_id"]: float(row["is_success"] and not row["left_out"]) for row in episodes.to_dicts()}


def gain(results: list[Success], arm: str, start: str) -> Interval:
    """Return the paired difference in success, over the tasks of all seeds."""
    pairs = [(success[arm], success[start]) for success in results]
    differences = [after.get(task, 0.0) - value for after, before in pairs for task, value in before.items()]
    return bootstrap_mean(differences, seed=0)


def print_table(results: list[Success]) -> None:
    """Print success and gain of each arm, and the last line."""
    print("| arm | success by seed | starts from | gain, points [95 %] |\n|---|---|---|---|")
    claims: dict[str, str] = {}
    for arm in ARMS:
        if any(arm.name not in each or arm.start not in each for each in results):
            continue
        rates = [sum(each[arm.name].values()) / len(each[arm.name]) for each in results]
        difference = gain(results, arm.name, arm.start)
        text = " ".join(f"{value * 100:+.1f}" for value in difference)
        value, low, high = text.split()
        print(f"| {arm.name} | {', '.join(f'{rate:.0%}' for rate in rates)} | {arm.start} | {value} [{low}, {high}] |")
        if arm.claim:
            claims[arm.claim] = value
    base = [sum(each["base"].values()) / len(each["base"]) for each in results]
    print(f"\nThe base: {', '.join(f'{rate:.0%}' for rate in base)}.")
    print("ratio " + " ".join(f"{name}={value}" for name, value in claims.items()))


if __name__ == "__main__":
    main()
