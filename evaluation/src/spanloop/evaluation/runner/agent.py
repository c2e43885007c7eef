"""What makes attempts: a command that is started for each one, or a Python callable in a worker process."""

import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.processes.limited import Tail
from spanloop.foundation.processes.marked import VariableMark
from spanloop.semconv.environment import EPISODE_ID_ENV, PROCESS_MARK_ENV, SEED_ENV, TASK_ID_ENV

from .attempt import AttemptEnd, TaskAttempt

INSTRUMENT: Final = "opentelemetry-instrument"
_CALLABLE: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_ERROR_LINES: Final = 20
_ERROR_CHARACTERS: Final = 4_096


class AgentSettings(NamedTuple):
    """How an agent is run."""

    agent: str
    """A command line, in which ``{field}`` is replaced; or ``module:function``."""
    environment: Mapping[str, str]
    """Of all attempts, complete."""
    mark_prefix: str
    """Begins the mark of each process of the run."""
    cwd: Path | None = None
    timeout_s: float = 600.0
    is_instrumented: bool = True
    """Whether it runs under ``opentelemetry-instrument``."""


class NotStartedError(Exception):
    """Raised when an attempt is interrupted before the agent has seen it."""


class Agent(Protocol):
    """Makes one attempt after the other."""

    def attempt(self, attempt: TaskAttempt, should_stop: Callable[[], bool]) -> AttemptEnd | None:
        """Make an attempt; return None when it was interrupted because ``should_stop`` said so.

        Raises:
            ConfigurationError: No attempt can be made.
            NotStartedError: It was interrupted before it began.
        """
        ...

    def close(self) -> None:
        """End what is running."""
        ...


def is_callable_target(agent: str) -> bool:
    """Whether ``agent`` names a Python callable, and not a command."""
    return _CALLABLE.fullmatch(agent) is not None


def command_of(settings: AgentSettings) -> list[str]:
    """Return the words of the agent's command line.

    Raises:
        ConfigurationError: It is empty, or a quote is not closed.
    """
    try:
        words = shlex.split(settings.agent)
    except ValueError as error:
        raise ConfigurationError(
            f"The agent's command {settings.agent!r} cannot be read: {error}.", next_step="Quote it as for a shell."
        ) from error
    if not words:
        raise ConfigurationError("The agent's command is empty.", next_step='Give one: --agent "python app.py"')
    return words


def instrumented(words: Sequence[str], settings: AgentSettings) -> list[str]:
    """Return the command under ``opentelemetry-instrument``, that of the program's own environment if it has one.

    Raises:
        ConfigurationError: There is none.
    """
    if not settings.is_instrumented or Path(words[0]).name == INSTRUMENT:
        return list(words)
    path = settings.environment.get("PATH")
    program = shutil.which(words[0], path=path)
    beside = None if program is None else Path(program).with_name(INSTRUMENT)
    for candidate in (beside, shutil.which(INSTRUMENT, path=path)):
        if candidate is not None and os.access(candidate, os.X_OK):
            return [str(candidate), *words]
    raise ConfigurationError(
        f"There is no {INSTRUMENT} in the environment of {words[0]!r}.",
        next_step="Install spanloop there (pip install /path/to/spanloop), or give --no-instrument.",
    )


def activated(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment, with spanloop's own programs first on its PATH if it has no ``opentelemetry-instrument``.

    Then ``python`` is that of spanloop's own environment, as if the user had activated it: under its
    ``opentelemetry-instrument``, no other Python would find what it imports.
    """
    path = environment.get("PATH", os.defpath)
    if shutil.which(INSTRUMENT, path=path) is not None:
        return dict(environment)
    return {**environment, "PATH": os.pathsep.join((str(Path(sys.executable).parent), path))}


def attempt_environment(settings: AgentSettings, attempt: TaskAttempt) -> dict[str, str]:
    """Return the environment of one attempt's process."""
    return {
        **settings.environment,
        TASK_ID_ENV: attempt.task.id,
        EPISODE_ID_ENV: attempt.episode_id,
        SEED_ENV: str(attempt.seed),
        PROCESS_MARK_ENV: settings.mark_prefix + attempt.episode_id,
        **attempt.variables,
    }


def attempt_mark(settings: AgentSettings, attempt: TaskAttempt) -> VariableMark:
    """Return the mark of the processes with `attempt_environment`."""
    return VariableMark(PROCESS_MARK_ENV, settings.mark_prefix + attempt.episode_id)


def error_text(what: str, stderr: Tail) -> str:
    """Return what went wrong, with the last lines of stderr."""
    lines = stderr.text.strip().splitlines()[-_ERROR_LINES:]
    return "\n".join([what, *lines])[-_ERROR_CHARACTERS:]
