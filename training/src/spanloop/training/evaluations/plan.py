"""Say what an evaluation would do if it began now: ``python -m spanloop.training.evaluations.plan --data-dir D SPEC``.

Invariant: nothing is started or stored. It has a process of its own, in the folder that the file's relative paths start
at, because readers and graders may be code of the user.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, ValidationError

from spanloop.evaluation.runner.planning import check_agent, check_request, requested_tasks
from spanloop.foundation.errors import ConfigurationError, SpanloopError
from spanloop.foundation.paths import DataDir
from spanloop.store import connect
from spanloop.training.models.registry import Registry
from spanloop.training.promotion.evaluation_run import EvaluationRun
from spanloop.training.spec.stored_spec import EvaluationSpec, parse_evaluation

from .sources import enter_folder, read_source

_SHOWN_REJECTED: Final = 3
_TIMEOUT_S: Final = 120


class EvaluationPlan(BaseModel):
    """Holds what an evaluation would do."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    tasks: int
    rejected: int
    """Records of the source that are no task."""
    rejections: tuple[str, ...]
    """The first of them, each with its reason."""
    source: str
    agent: str
    grader: str
    attempts: int
    """At each task."""
    parallel: int
    timeout_s: float
    attempted: tuple[str, ...]
    """Versions whose attempts are complete, so that they are evaluated again only."""


def plan_evaluation(data_dir: DataDir, spec: EvaluationSpec) -> EvaluationPlan:
    """Read the tasks and check the agent; the working directory is the one that the file's paths start at.

    Raises:
        ConfigurationError: The file, the tasks, the agent or the grader cannot be used.
        SpanloopError: A service is away.
    """
    settings = read_source(data_dir, spec).settings
    registry = Registry(data_dir)
    runs = [EvaluationRun.of(registry.get(reference), settings) for reference in spec.versions]
    required = check_request(data_dir, runs[0].request()).required
    check_agent(data_dir, runs[0].request())
    rejected: list[str] = []
    with connect(data_dir) as store:
        reading = requested_tasks(
            runs[0].request(), store, required=required, on_reject=lambda each: rejected.append(str(each))
        )
        tasks = sum(1 for _ in reading)
    return EvaluationPlan(
        tasks=tasks,
        rejected=len(rejected),
        rejections=tuple(rejected[:_SHOWN_REJECTED]),
        source=f"data set {spec.data_set}" if spec.data_set else settings.tasks,
        agent=settings.agent,
        grader=settings.grader,
        attempts=settings.attempts,
        parallel=settings.parallel,
        timeout_s=settings.timeout_s,
        attempted=tuple(run.version.reference for run in runs if run.is_complete(data_dir)),
    )


def fetch_plan(data_dir: DataDir, spec: EvaluationSpec) -> EvaluationPlan:
    """Return the plan that a process of its own makes.

    Raises:
        ConfigurationError: There is none; the message is that of the process.
    """
    command = [sys.executable, "-m", __name__, "--data-dir", str(data_dir.path), spec.model_dump_json()]
    try:
        made = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise ConfigurationError(
            f"The tasks of the evaluation were not read within {_TIMEOUT_S} s.", next_step="Try it again."
        ) from error
    try:
        return EvaluationPlan.model_validate_json(made.stdout)
    except ValidationError:
        problem = _last_problem(made.stderr)
    raise ConfigurationError(problem["what"], next_step=problem["next_step"])


def _last_problem(text: str) -> dict[str, str]:
    lines = [line for line in text.splitlines() if line.strip()]
    try:
        problem = json.loads(lines[-1])
        return {"what": str(problem["what"]), "next_step": str(problem["next_step"])}
    except (IndexError, ValueError, KeyError, TypeError):
        return {"what": f"The plan could not be made: {(lines or ['no output'])[-1]}", "next_step": ""}


def main(argv: list[str] | None = None) -> int:
    """Print the plan as JSON, or what stands against it; return the exit status."""
    parser = argparse.ArgumentParser(prog=f"python -m {__spec__.name}", description="Plan an evaluation.")
    parser.add_argument("--data-dir", required=True, type=Path)
    parser.add_argument("spec", help="The evaluation, as JSON")
    arguments = parser.parse_args(argv)
    spec = parse_evaluation(arguments.spec)
    enter_folder(spec)
    try:
        plan = plan_evaluation(DataDir(arguments.data_dir).open(), spec)
    except SpanloopError as error:
        problem = {"what": error.what, "next_step": error.next_step}
        print(json.dumps(problem), file=sys.stderr, flush=True)  # noqa: T201 - read by `fetch_plan`
        return error.exit_code
    print(plan.model_dump_json(), flush=True)  # noqa: T201 - read by `fetch_plan`
    return 0


if __name__ == "__main__":
    sys.exit(main())
