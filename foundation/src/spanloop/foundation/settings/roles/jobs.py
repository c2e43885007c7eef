"""Settings of the scheduler and of job runners."""

from types import MappingProxyType

from pydantic import Field

from .base import StatusSettings


class JobSettings(StatusSettings):
    """The settings of every role that runs jobs."""

    slots: int = Field(default=1, ge=1)
    """Jobs that run here at the same time."""
    gpu_slots: int | None = Field(default=None, ge=0)
    """Of them, jobs that may compute on a GPU (their device is not cpu). Default: all of them."""
    lease_s: float = Field(default=30.0, gt=0)
    """Seconds after which a lease that was not renewed is abandoned; it is renewed three times as often. So long may
    the control database be away before running jobs end and go back to the queue."""
    grace_s: float = Field(default=8.0, ge=0)
    """Seconds between SIGTERM and SIGKILL to a job; below the 10 s in which a service must stop."""
    stopped_s: float = Field(default=600.0, gt=0)
    """A job with a process that is stopped (SIGSTOP) for so many seconds is started again."""
    poll_s: float = Field(default=1.0, gt=0)
    """Seconds between two looks at the control database: the delay of starts and cancellations."""
    runner: str = ""
    """Command that runs one job, in one quoted string. Default: that of this installation."""


class RunnerSettings(JobSettings):
    """``[serve.runner]``: run queued jobs, and attempts of ``spanloop run --pool``."""

    role = "runner"
    module = "spanloop.training.run.runner"

    slots: int = Field(default=1, ge=0)
    """Jobs that run here at the same time."""
    attempt_slots: int = Field(default=0, ge=0, le=1_000)
    """Attempts of ``spanloop run --pool`` that are made here at the same time, by the commands that the run gives."""


class SchedulerSettings(JobSettings):
    """``[serve.scheduler]``: submit jobs of schedules, requeue abandoned jobs, decide about canaries, send alerts."""

    role = "scheduler"
    module = "spanloop.training.run.scheduler"
    alone = MappingProxyType({"slots": 0})

    slots: int = Field(default=1, ge=0)
    """Jobs that the scheduler itself runs at the same time; 0 leaves them to runners."""
    leadership_s: float = Field(default=15.0, gt=0)
    """Seconds after which another scheduler takes over from one that has not renewed its leadership."""
