"""Environments: what an agent acts in while it attempts a task.

An `Environment` is a class with ``reset``, ``step`` and ``close``, or a server that speaks the same protocol over HTTP.
``worker`` runs one in a process of its own, ``pool`` keeps such processes, ``endpoint`` lets agents in. A package
offers environments by entry points of the group ``spanloop.environments``.
"""

from typing import Final

from spanloop.foundation.plugins import ExtensionPoint
from spanloop.foundation.settings import EnvironmentSettings

from .base import Action, Environment, EnvironmentFailedError, Fields, StepResult, Tool
from .messages import tool_json
from .outcome import Outcome

__all__ = [
    "ENVIRONMENT_POINT",
    "Action",
    "Environment",
    "EnvironmentFailedError",
    "EnvironmentSettings",
    "Fields",
    "Outcome",
    "StepResult",
    "Tool",
    "tool_json",
]

ENVIRONMENT_POINT: Final = ExtensionPoint[Environment](
    what="environment",
    group="spanloop.environments",
    base=Environment,
    built_in={
        "gymnasium": f"{__name__}.gymnasium_environment:GymnasiumEnvironment",
        "openenv": f"{__name__}.openenv_environment:OpenEnvEnvironment",
        "http": f"{__name__}.http_environment:HttpEnvironment",
        "user": f"{__name__}.user_environment:UserEnvironment",
    },
)
