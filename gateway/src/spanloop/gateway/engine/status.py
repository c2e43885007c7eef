"""The engine's state, and the result of a deployment."""

from enum import StrEnum
from typing import NamedTuple

from .deployment import Deployment


class EngineState(StrEnum):
    """The engine's state."""

    NO_DEPLOYMENT = "no_deployment"
    STARTING = "starting"
    SERVING = "serving"
    SWAPPING = "swapping"
    RESTARTING = "restarting"
    """The engine ended on its own and is being restarted; requests get 503."""
    PAUSED = "paused"
    """Stopped, or asleep on a GPU, while a job trains; started again afterwards; requests get 503."""
    STOPPED = "stopped"
    """Stopped by ``/admin/stop``."""
    FAILED = "failed"
    """The engine does not start; only a new deployment starts it again."""


class EngineStatus(NamedTuple):
    """The engine's state at one moment."""

    state: EngineState
    deployment: Deployment | None
    error: str
    """The last error; empty once the engine serves again."""
    restarts: int
    """How often the engine ended on its own."""
    start_duration_s: float
    """Duration of the last start or swap."""
    engine_pid: int | None
    sampling: dict[str, str]
    """Settings of the engine that change what its requests sample."""


class DeployResult(NamedTuple):
    """A successful deployment."""

    deployment: Deployment
    method: str
    """``start``, ``restart``, ``hot_swap`` or ``unchanged``."""
    duration_s: float
    preempted: int
    """Number of running requests that the swap preempted."""
