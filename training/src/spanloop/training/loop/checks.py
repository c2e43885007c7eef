"""Check everything that the loop needs before it starts anything.

Invariant: what can be known to be wrong is refused here with one sentence, before a model is served or an attempt made.
"""

from collections import Counter
from typing import Final, NamedTuple

from spanloop.evaluation.runner.planning import (
    RunRequest,
    check_agent,
    check_environment,
    check_request,
    requested_tasks,
)
from spanloop.evaluation.tasks import Rejected, Task
from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.paths import DataDir
from spanloop.foundation.settings import Evaluation, Promotion
from spanloop.store import Store
from spanloop.training.models.registry import Registry
from spanloop.training.promotion.submission_checks import check_extensions
from spanloop.training.verl_plugin.override_check import check_verl

from .app_file import App

_SHOWN: Final = 3
_TRIED: Final = 2
"""Tasks that the environment is tried with."""


class CheckedTasks(NamedTuple):
    """The tasks of a table of the file."""

    ids: frozenset[str]
    digests: frozenset[str]
    rejected: int
    """Records that are no task."""
    first: tuple[Task, ...] = ()
    """The first ones, to try the environment with."""


class CheckedApp(NamedTuple):
    """A file that was checked."""

    app: App
    rule: Promotion

    training_tasks: CheckedTasks
    """Of ``[run]``."""
    evaluation_tasks: CheckedTasks
    notes: tuple[str, ...]
    """What the user should know."""


def check_app(data_dir: DataDir, app: App, rule: Promotion, store: Store) -> CheckedApp:
    """Check the model, the agents, the tasks, the trainings and the rule.

    Raises:
        ConfigurationError: Something cannot be used.
        JobError: The model is not registered and has no source, or a selector cannot be used.
    """
    registry = Registry(data_dir)
    if not registry.list(app.model.name) and not app.model.source:
        registry.get(app.model.name)  # raises
    for spec in app.train:
        check_verl(spec)
        check_extensions(spec.changed(deploy=False), data_dir.path)
    training, evaluation = (
        _check_tasks(data_dir, name, settings, store)
        for name, settings in (("run", app.run), ("evaluation", app.evaluation))
    )
    _check_overlap(training, evaluation)
    if len(evaluation.ids) < rule.min_tasks and not all(spec.run.deploy_always for spec in app.train):
        raise ConfigurationError(
            f"[evaluation] has {len(evaluation.ids)} tasks, and [promotion] promotes on {rule.min_tasks} or more.",
            next_step="Add tasks, or lower min_tasks in [promotion].",
        )
    agents = {
        (each.agent, each.cwd): (each, tasks) for each, tasks in ((app.evaluation, evaluation), (app.run, training))
    }
    for settings, tasks in agents.values():
        check_agent(data_dir, _request(settings))
        check_environment(data_dir, _request(settings), tasks.first)
    rejected = (("run", training.rejected), ("evaluation", evaluation.rejected))
    notes = tuple(f"[{name}]: {count:,} records are no task; the others are used" for name, count in rejected if count)
    return CheckedApp(app, rule, training, evaluation, notes)


def _request(settings: Evaluation) -> RunRequest:
    return RunRequest(run_id="check", model="model@v1", **settings.model_dump())


def _check_tasks(data_dir: DataDir, name: str, settings: Evaluation, store: Store) -> CheckedTasks:
    """Read all tasks of a table.

    Raises:
        ConfigurationError: There is no task; the message has the first rejected records.
    """
    rejected: list[Rejected] = []
    try:
        request = _request(settings)
        checked = check_request(data_dir, request)
        reading = requested_tasks(request, store, required=checked.required, on_reject=rejected.append)
        first: list[Task] = []
        tasks: list[tuple[str, str]] = []
        for task in reading:
            tasks.append((task.id, task.digest))
            if len(first) < _TRIED:
                first.append(task)
    except ConfigurationError as error:
        raise ConfigurationError(f"[{name}]: {error.what}", next_step=error.next_step) from error
    if not tasks:
        reasons = Counter(str(each.reason.value) for each in rejected)
        counts = ", ".join(f"{count:,} {reason}" for reason, count in reasons.items())
        shown = "; ".join(map(str, rejected[:_SHOWN]))
        found = f"{len(rejected):,} records, none of which is a task ({counts}): {shown}" if rejected else "no record"
        raise ConfigurationError(
            f"[{name}]: {settings.tasks} has {found}.",
            next_step="Correct the tasks, or name the field that the agent's command and the grader read.",
        )
    ids, digests = frozenset(task for task, _ in tasks), frozenset(digest for _, digest in tasks)
    return CheckedTasks(ids, digests, len(rejected), tuple(first))


def _check_overlap(training: CheckedTasks, evaluation: CheckedTasks) -> None:
    ids, digests = training.ids & evaluation.ids, training.digests & evaluation.digests
    if ids or digests:
        shown = ", ".join(sorted(ids)[:_SHOWN]) or "tasks with other ids and the same content"
        raise ConfigurationError(
            f"{max(len(ids), len(digests)):,} tasks stand in both [run] and [evaluation]: {shown}. What a version was "
            "trained on does not count when it is evaluated.",
            next_step="Keep tasks for the evaluation that the agent is not trained on.",
        )
