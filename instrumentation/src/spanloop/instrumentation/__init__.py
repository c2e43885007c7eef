"""The code that runs inside users' apps: an OpenTelemetry distro, the task context and the reward call.

Invariant: the app's stdout, exit code and exceptions are the same with and without this package. Errors
of this package are reported on at most one line of stderr, and never raised into user code.

``opentelemetry-instrument python app.py`` needs no import of this package. ``task()``, ``reward()`` and
``mark()`` are for apps that know which task they attempt and how well it went, and ``tool`` is for those that call
their tools themselves; without the distro they have no effect. ``environment()`` lets an agent act in its attempt's
environment.
"""

from spanloop.instrumentation.attempts import Attempt
from spanloop.instrumentation.environments import EnvironmentSession, EnvironmentUnavailableError, environment
from spanloop.instrumentation.marks import mark
from spanloop.instrumentation.rewards import reward
from spanloop.instrumentation.tasks import TaskContext, task
from spanloop.instrumentation.tools import tool

__all__ = [
    "Attempt",
    "EnvironmentSession",
    "EnvironmentUnavailableError",
    "TaskContext",
    "environment",
    "mark",
    "reward",
    "task",
    "tool",
]
