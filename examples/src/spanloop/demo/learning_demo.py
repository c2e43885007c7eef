"""The learning demo: ``examples/office/app.toml``, run by the loop on services of its own.

Invariant: the demo has no rounds of its own. Its folder holds a copy of the app that ``spanloop loop`` continues, too.
"""

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

import psutil
from rich.markup import escape

from spanloop.cli.console import err, markup_text, out
from spanloop.cli.learning.loop import run_file
from spanloop.cli.learning.loop_display import duration_text
from spanloop.foundation.cpu_features import computes_bfloat16
from spanloop.foundation.errors import ConfigurationError
from spanloop.runtime.services import Ports, is_free
from spanloop.runtime.stack import running_stack
from spanloop.training.loop.loop import LoopOrder
from spanloop.training.loop.rounds import LoopRound, StepName

from .learning_report import report

if TYPE_CHECKING:
    from spanloop.foundation.paths import DataDir
    from spanloop.runtime.supervisor import Supervisor

_APP: Final = "app.toml"
_PORTS: Final = "ports.json"
_TAIL_CHARACTERS: Final = 2_000
_GB: Final = 1e9
_START_S: Final = 60.0
"""Until the model is fetched and vLLM serves it."""
_NEEDED_BYTES: Final = 11e9
_NEEDED_DISK_BYTES: Final = 5e9
ASSUMED_S: Final[Mapping[StepName, float]] = MappingProxyType(
    {
        StepName.MEASURE: 161.0,
        StepName.COLLECT: 174.0,
        StepName.TRAIN: 177.0,
        StepName.TEST: 146.0,
        StepName.DECIDE: 2.0,
    }
)
"""Seconds of each step as measured on two quiet cores with bfloat16."""
_NO_CHANGES: Final[Mapping[str, str]] = MappingProxyType({})


class DemoSettings(NamedTuple):
    """What a user chooses."""

    source: str = "smollm2"
    """The model, as for ``spanloop models add``."""
    seed: int = 0
    """Seed of tasks, shuffling and intervals. Sampling is not seeded, as in production."""
    rounds: int = 2
    train_tasks: int = 80
    test_tasks: int = 160
    changes: Mapping[str, str] = _NO_CHANGES
    """Lines of the app's file that differ, for tests."""


def office_folder() -> Path:
    """Return the folder of the demo's agent: beside this module in an installed wheel, under ``examples`` in a clone.

    Raises:
        ConfigurationError: It is in neither place.
    """
    here = Path(__file__)
    candidates = [here.with_name("office_agent"), *(parent / "examples" / "office" for parent in here.parents)]
    for folder in candidates:
        if (folder / _APP).exists():
            return folder
    raise ConfigurationError(
        "The demo's agent is missing: expected examples/office of the project.",
        next_step="Reinstall spanloop, or run the demo in a clone of the project.",
    )


def print_needs(path: Path, rounds: int) -> None:
    """Print what the demo needs, what this machine has, and how long it takes."""
    cores, memory = psutil.cpu_count() or 1, psutil.virtual_memory().available
    path.parent.mkdir(parents=True, exist_ok=True)
    disk = shutil.disk_usage(path.parent).free
    number_format = "bfloat16" if computes_bfloat16() else "no bfloat16, so it takes two to three times as long"
    seconds = _START_S + (sum(ASSUMED_S.values()) - ASSUMED_S[StepName.MEASURE]) * rounds + ASSUMED_S[StepName.MEASURE]
    err.print(
        f"It takes about {duration_text(seconds)} for {rounds} rounds on two quiet cores with bfloat16.", markup=False
    )
    err.print(
        f"It needs {_NEEDED_BYTES / _GB:.0f} GB of memory and {_NEEDED_DISK_BYTES / _GB:.0f} GB of disk. This machine: "
        f"{cores} cores ({number_format}), {memory / _GB:.0f} GB of memory and {disk / _GB:.0f} GB of disk are free.",
        markup=False,
    )
    if memory < _NEEDED_BYTES or disk < _NEEDED_DISK_BYTES:
        err.print("[yellow]That may be too little.[/yellow] `spanloop demo --tiny` needs 4 GB and two minutes.")


def learn(data_dir: "DataDir", settings: DemoSettings, *, serve: bool) -> bool:
    """Run the learning demo in a data directory, and continue an unfinished one.

    Args:
        data_dir: The opened data directory.
        settings: An unfinished demo must have the same, but for the rounds.
        serve: Keep everything running afterwards, until Ctrl-C.

    Returns:
        Whether every claim of the report holds.

    Raises:
        SpanloopError: A step failed; the same call continues.
        Exit: With 130 after Ctrl-C.
    """
    print_needs(data_dir.path, settings.rounds)
    app = prepare_app(data_dir.path / "demo", settings)
    err.print(f"the demo's data: {data_dir.path}; its app: {app}", markup=False)
    ports = stored_ports(data_dir.path / "demo" / _PORTS)
    with _services(data_dir, ports) as supervisor:
        dashboard = data_dir.find("dashboard")
        if dashboard is not None:
            err.print(f"watch it: {dashboard.url}", markup=False)
        end = run_file(data_dir, app, LoopOrder(settings.rounds, assumed_s=ASSUMED_S))
        assert end is not None  # this is no dry run
        ok = report(data_dir, end.rounds)
        out.print(f"\n{_duration(end.rounds)}", markup=False)
        if serve:
            if dashboard is not None:
                out.print(f"the dashboard on this data: {dashboard.url}", markup=False)
            err.print("Ctrl-C stops everything; the data stays")
            with suppress(KeyboardInterrupt):
                supervisor.watch(threading.Event())
    return ok


@contextmanager
def _services(data_dir: "DataDir", ports: Ports) -> "Generator[Supervisor]":
    """Start the services, with a spinner while they start."""
    with ExitStack() as running:
        with err.status("the services start") as spinner:

            def show(text: str) -> None:
                spinner.update(markup_text(escape(text)))

            supervisor = running.enter_context(running_stack(data_dir, ports, show))
        yield supervisor


def prepare_app(folder: Path, settings: DemoSettings) -> Path:
    """Copy the app into ``folder`` and write its tasks; return its file.

    Raises:
        ConfigurationError: The folder has the app of a demo with other settings, or there are too few tasks.
    """
    source = office_folder()
    text = app_text((source / _APP).read_text(encoding="utf-8"), settings)
    app = folder / _APP
    if app.exists() and app.read_text(encoding="utf-8") != text:
        changed = next(
            f"it has {old!r}, now {new!r}"
            for old, new in zip(app.read_text(encoding="utf-8").splitlines(), text.splitlines(), strict=False)
            if old != new
        )
        raise ConfigurationError(
            f"The demo in {folder.parent} was started with other settings: {changed}.",
            next_step="Give the same settings to continue, another --data-dir, or --fresh to start over.",
        )
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("agent.py", "tasks.py", "tools.py"):
        shutil.copy(source / name, folder / name)
    if not app.exists():
        write_tasks(folder, settings)
        app.write_text(text, encoding="utf-8")
    return app


def app_text(text: str, settings: DemoSettings) -> str:
    """Return the app's file with the settings of the user."""
    changes = {
        "seed = 0\n": f"seed = {settings.seed}\n",
        'source = "smollm2" ': f"source = {json.dumps(settings.source)} ",
    }
    for old, new in (changes | dict(settings.changes)).items():
        if old not in text:
            raise ConfigurationError(f"{_APP} of the demo has no {old!r}.")
        text = text.replace(old, new)
    return text


def write_tasks(folder: Path, settings: DemoSettings) -> None:
    """Let the app's ``tasks.py`` write its tasks and its office.

    Raises:
        ConfigurationError: There are not so many different questions.
    """
    command = [sys.executable, "tasks.py", ".", "--seed", str(settings.seed)]
    command += ["--train", str(settings.train_tasks), "--test", str(settings.test_tasks)]
    completed = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if completed.returncode:
        raise ConfigurationError(f"Tasks could not be generated: {completed.stderr.strip()[-_TAIL_CHARACTERS:]}")


def stored_ports(file: Path, is_free: Callable[[int], bool] = is_free) -> Ports:
    """Return the ports of the demo's last start, so that bookmarks stay; others where one of them is in use."""
    try:
        ports = Ports(**json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        ports = None
    if ports is None or not all(map(is_free, ports)):
        ports = Ports.free()
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(ports._asdict()), encoding="utf-8")
    return ports


def _duration(rounds: "tuple[LoopRound, ...]") -> str:
    """Format the time of the steps of all runs of the command."""
    steps = [(f"{step.name} {number.number}", step.seconds) for number in rounds for step in number.steps]
    longest = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in sorted(steps, key=lambda each: -each[1])[:4])
    return f"the demo took {sum(seconds for _, seconds in steps) / 60:.1f} minutes: {longest}"
