"""Write an ``app.toml`` for a service that sends spans: what they tell is filled in, what they do not tell is marked.

Invariant: no file that exists is changed.
"""

import json
import re
from collections.abc import Collection, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

from spanloop.evaluation.tasks.reading import TaskReading
from spanloop.evaluation.tasks.task import Task
from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.paths import DataDir
from spanloop.foundation.settings.invalid_keys import nearest_key
from spanloop.store import Store
from spanloop.training.models.registry import Registry

from .app_file import UNKNOWN

_TEST_SHARE: Final = 3
"""Each third task is for the evaluation."""
_MIN_TASKS: Final = 20
_MOST_TASKS: Final = 600
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9._-]+")
_TEMPLATE: Final = """\
# {title}
# Written by `spanloop init` from {episodes} stored episodes{agents}.
# Replace each "{unknown}"; then: spanloop loop {file} --dry-run, and spanloop loop {file} --rounds 2.

[model]
# The model that the agent calls through the gateway, and that learns. {models_note}
name = {model}
{called}# Where it comes from when it is not registered yet: a Hugging Face folder, a hub id, or smollm2.
{source}

[run]
# The training tasks: {train_count} of the {task_count} requests that are stored of the service.
tasks = {train_file}
# How one task is attempted: a command, in which {{prompt}} is the task's field (standard input has all fields as JSON,
# too), or a Python function module:function that gets the fields and returns the answer. It calls OPENAI_BASE_URL and
# OPENAI_MODEL, and runs in this folder under opentelemetry-instrument. An app with an environment of its own names its
# interpreter: /path/to/venv/bin/python.{tools_note}
agent = "{unknown}"    # for example: python app.py --ask {{prompt}}
attempts = 4           # at each task; a group of attempts is what GRPO compares
parallel = 4
timeout_s = 300.0
{grader}

[evaluation]
# Tasks that are never trained on; the same agent and grader attempt them with the champion and with each new version.
tasks = {test_file}
attempts = 1

# How each round trains; a second [[train]] is that of the second and further rounds. The settings are those of
# `spanloop train --help`.
[[train]]
kind = {kind}          # sft imitates successful attempts, dr_grpo compares the attempts at a task
steps = 20

[promotion]
# When a new version becomes the champion.
metric = "success"
min_tasks = {min_tasks}         # no promotion on fewer tasks{few_note}

[budget]
# What all rounds may cost together; remove a line to have no limit.
hours = 8.0
# tokens = 5_000_000
# money = 20.0
# price_per_hour = 2.5
# price_per_million_tokens = 0.0
"""


class Service(NamedTuple):
    """A service with stored episodes."""

    name: str
    agents: tuple[str, ...]
    models: tuple[str, ...]
    episodes: int
    rewarded: int
    """Of them with a reward."""
    tasks: int
    """Different requests."""


class WrittenFiles(NamedTuple):
    """What was written."""

    app: Path
    train: Path
    test: Path
    service: Service
    unknown: tuple[str, ...]
    """Keys that are to be filled in."""


def list_services(store: Store) -> tuple[Service, ...]:
    """Return the services with stored episodes, that with the newest one first."""
    return tuple(
        Service(
            str(row["service_name"]),
            tuple(row["agents"]),
            tuple(row["models"]),
            int(row["episodes"]),
            int(row["rewarded"]),
            int(row["tasks"]),
        )
        for row in store.query("loop_services").to_dicts()
    )


def write_app_file(data_dir: DataDir, store: Store, file: Path, *, service: str = "") -> WrittenFiles:
    """Write the file and its tasks beside it.

    Args:
        data_dir: With the registered models.
        store: With the episodes.
        file: The file to write.
        service: Whose requests are the tasks; empty for the only service.

    Raises:
        ConfigurationError: A file exists already, no episode is stored, or the service is not known or not named.
    """
    train, test = (file.with_name(f"{file.stem}-{split}.jsonl") for split in ("train", "test"))
    existing = [each.name for each in (file, train, test) if each.exists()]
    if existing:
        raise ConfigurationError(
            f"{', '.join(existing)} in {file.absolute().parent} exist already.",
            next_step="Name another file, or move these away; nothing was written.",
        )
    found = _chosen(list_services(store), service)
    tasks = _tasks(store, found)
    tests = tasks[1::_TEST_SHARE]
    trainings = [task for task in tasks if task not in tests]
    file.parent.mkdir(parents=True, exist_ok=True)
    for path, chosen in ((train, trainings), (test, tests)):
        path.write_text(
            "".join(json.dumps({"id": each.id, **_fields(each)}) + "\n" for each in chosen), encoding="utf-8"
        )
    registered = {version.name for version in Registry(data_dir).list()}
    text = _text(registered, store, found, file, _Split(train, trainings, test, tests))
    file.write_text(text, encoding="utf-8")
    unknown = [line.partition("=")[0].strip() for line in text.splitlines() if re.match(rf'\w+ = "{UNKNOWN}"', line)]
    return WrittenFiles(file, train, test, found, tuple(unknown))


def _chosen(services: Sequence[Service], name: str) -> Service:
    names = [each.name for each in services]
    if not services:
        raise ConfigurationError(
            "No episode is stored yet.",
            next_step="Run your app under opentelemetry-instrument while spanloop up runs; then spanloop init again.",
        )
    if name:
        found = next((each for each in services if each.name == name), None)
        if found is None:
            raise ConfigurationError(
                f"No episode of a service {name!r} is stored; there are {', '.join(names)}.",
                next_step=nearest_key(name, names) or "Name one of these.",
            )
        return found
    if len(services) > 1:
        raise ConfigurationError(
            f"Episodes of several services are stored: {', '.join(names)}.",
            next_step=f"Name one: spanloop init --service {names[0]}",
        )
    return services[0]


def _tasks(store: Store, service: Service) -> list[Task]:
    reading = TaskReading("stored-traces:", options={"service": service.name}, store=store)
    tasks = list(islice(reading, _MOST_TASKS))
    if not tasks:
        raise ConfigurationError(
            f"No stored episode of {service.name!r} begins with a message of a user.",
            next_step="Check what is stored: spanloop doctor; or write the tasks yourself: docs/how-to/loop.md.",
        )
    return tasks


def _fields(task: Task) -> dict[str, Any]:
    """Return the fields that a user reads; the whole first state of an episode is none of them."""
    return {name: value for name, value in task.fields.items() if name != "messages"}


class _Split(NamedTuple):
    """Where the tasks are written."""

    train_file: Path
    trainings: Sequence[Task]
    test_file: Path
    tests: Sequence[Task]


def _text(registered: Collection[str], store: Store, service: Service, file: Path, split: _Split) -> str:
    called = next((each.partition("@")[0] for each in service.models if each.partition("@")[0] in registered), "")
    name = called or _NOT_IN_NAMES.sub("-", service.name).strip("-._")[:64] or "mine"
    tools: list[Any] = store.query("loop_tools", service=service.name)["tools"].to_list()
    names = ", ".join(tools[0]) if tools and tools[0] else ""
    trainings, tests = split.trainings, split.tests
    models = ", ".join(service.models) or "no model"
    min_tasks = max(1, min(_MIN_TASKS, len(tests)))
    return _TEMPLATE.format(
        title=f"The loop of {service.name}.",
        unknown=UNKNOWN,
        episodes=service.episodes,
        agents=f" of {', '.join(service.agents)}" if service.agents else "",
        file=file.name,
        models_note=f"The stored episodes called {models}.",
        model=json.dumps(name),
        called=_called_text(store, service, registered),
        source='# source = "smollm2"' if called else f'source = "{UNKNOWN}"',
        train_count=len(trainings),
        task_count=len(trainings) + len(tests),
        train_file=json.dumps(split.train_file.name),
        test_file=json.dumps(split.test_file.name),
        tools_note=f"\n# Its tools were: {names}." if names else "",
        grader=_grader_text(service, [*trainings, *tests]),
        kind='"dr_grpo"' if service.rewarded or len(trainings) > len(tests) else '"sft"',
        min_tasks=min_tasks,
        few_note="" if min_tasks == _MIN_TASKS else "; so few tasks decide little, add your own",
    )


def _called_text(store: Store, service: Service, registered: Collection[str]) -> str:
    """Return the lines about the names by which the app calls its models; empty where the spans do not tell them."""
    requested: list[str] = store.query("loop_called", service=service.name)["names"].to_list()[0]
    names = [name for name in requested or service.models if "@" not in name and name not in registered]
    if not names:
        return ""
    note = "# The gateway answers to these names with it, so that the agent's source stays as it is."
    return f"{note}\ncalled = {json.dumps(names)}\n"


def _grader_text(service: Service, tasks: Sequence[Task]) -> str:
    """Return the lines about the reward."""
    if service.rewarded:
        return (
            f"# {service.rewarded} of the {service.episodes} episodes have a reward that the app sent: it counts "
            "while there is no grader.\n"
            '# grader = "exact"      # compares the answer with a field of the task; spanloop extensions graders'
        )
    answered = sum("answer" in task.fields for task in tasks)
    known = (
        f" {answered} of the tasks have one, from a successful episode." if answered else " The stored tasks have none."
    )
    return (
        "# How an answer becomes a reward: exact, numeric, regex or json compare it with the task's field `answer`.\n"
        f"#{known} rubric asks a model; module:function is your own. See: spanloop extensions graders\n"
        f'grader = "{UNKNOWN}"'
    )
