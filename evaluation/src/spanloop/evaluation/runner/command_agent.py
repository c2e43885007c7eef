"""Start a command for each attempt.

The task reaches it in two ways: ``{field}`` in the command is replaced by the field's text, and all fields stand as one
JSON object on standard input. Invariant: when an attempt has ended, no process of it is alive.
"""

import json
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from spanloop.converters.rewards.comparison import text_of
from spanloop.evaluation.tasks import Task
from spanloop.evaluation.tasks.placeholders import fill, placeholders
from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.processes.limited import GRACE_S, Launch, LimitedProcess, Wakeup

from .agent import (
    AgentSettings,
    attempt_environment,
    attempt_mark,
    command_of,
    error_text,
    instrumented,
)
from .answers import Output, answer_of_output
from .attempt import AttemptEnd, EndState, TaskAttempt

OWN_PLACEHOLDERS: Final = ("task_id", "attempt", "seed", "model")


def required_fields(command: str) -> tuple[str, ...]:
    """Return the fields of a task that the command refers to."""
    return tuple(name for name in placeholders(command) if name not in OWN_PLACEHOLDERS)


class CommandAgent:
    """Runs the command.

    Args:
        settings: How it is run.
        model: The value of ``{model}``.
        output: What of the output is the answer.

    Raises:
        ConfigurationError: It cannot be run.
    """

    def __init__(self, settings: AgentSettings, *, model: str, output: Output) -> None:
        self._settings: Final = settings
        self._words: Final = instrumented(command_of(settings), settings)
        self._model: Final = model
        self._output: Final = output

    def check(self) -> None:
        """Check that the program, and the script of a Python interpreter, exist.

        Raises:
            ConfigurationError: One does not exist.
        """
        program, *arguments = command_of(self._settings)
        folder = self._settings.cwd or Path.cwd()
        path = self._settings.environment.get("PATH")
        if shutil.which(str(folder / program) if "/" in program else program, path=path) is None:
            raise ConfigurationError(
                f"The agent's command {program!r} does not exist, or is not executable.",
                next_step=f"Name another one; it is looked for in {folder}, or on the PATH.",
            )
        script = next((each for each in arguments if not each.startswith("-")), "")
        if Path(program).name.startswith("python") and script.endswith(".py") and not (folder / script).is_file():
            raise ConfigurationError(
                f"The agent's script {script} does not exist in {folder}.", next_step="Name another one, or set cwd."
            )

    def attempt(self, attempt: TaskAttempt, should_stop: Callable[[], bool]) -> AttemptEnd | None:
        """Make an attempt; return None when it was interrupted."""
        started_us, started_s = time.time_ns() // 1_000, time.monotonic()

        def ended(state: EndState, error: str, exit_code: int | None = None, answer: str = "") -> AttemptEnd:
            duration_ms = round((time.monotonic() - started_s) * 1_000)
            return AttemptEnd(state, started_us, duration_ms, answer, error, exit_code)

        with tempfile.TemporaryFile() as stdin:
            stdin.write(json.dumps(dict(attempt.task.fields), ensure_ascii=False).encode())
            stdin.seek(0)
            launch = Launch(
                command=_filled(self._words, self._values(attempt)),
                environment=attempt_environment(self._settings, attempt),
                mark=attempt_mark(self._settings, attempt),
                cwd=self._settings.cwd,
                stdin=stdin,
            )
            try:
                process = LimitedProcess(launch)
            except (OSError, ValueError) as error:
                return ended(EndState.CRASHED, f"the command cannot be started: {error}")
            with process:
                wakeup = process.wait(self._settings.timeout_s, should_stop=should_stop)
                status = process.end(grace_s=GRACE_S)
        match wakeup:
            case Wakeup.STOPPED:
                return None
            case Wakeup.TIMED_OUT:
                what = f"stopped after {self._settings.timeout_s:g} s"
                return ended(EndState.TIMED_OUT, error_text(what, process.stderr), status)
            case _:
                answer = answer_of_output(process.stdout.text, self._output)
                what = error_text(_described(status), process.stderr) if status else ""
                return ended(EndState.CRASHED if status else EndState.FINISHED, what, status, answer)

    def close(self) -> None:
        """Do nothing: each attempt ends its own processes."""

    def _values(self, attempt: TaskAttempt) -> Mapping[str, str]:
        own = {
            "task_id": attempt.task.id,
            "attempt": str(attempt.number),
            "seed": str(attempt.seed),
            "model": self._model,
        }
        return {**_texts(attempt.task), **own}


def _texts(task: Task) -> dict[str, str]:
    return {name: text_of(value) for name, value in task.fields.items()}


def _filled(words: Sequence[str], values: Mapping[str, str]) -> list[str]:
    return [fill(word, values) for word in words]


def _described(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"ended by signal {-status}"
