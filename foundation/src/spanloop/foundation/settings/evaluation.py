"""``[evaluation]``: the tasks that a job's new version attempts before the promotion rule decides about it."""

from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from .section import OptionName, Section, VariableSection


class EnvironmentSettings(Section):
    """``[environment]``: the environment that an agent acts in."""

    name: Annotated[str, OptionName("--environment")]
    """The environment: ``gymnasium``, ``openenv``, ``http``, ``user``, one of a package, or MODULE:NAME; ``spanloop
    extensions environments`` lists them with their options."""
    options: Annotated[dict[str, str], OptionName("--environment-option")] = Field(default_factory=dict[str, str])
    """Options of the environment."""
    reset_timeout_s: Annotated[float, OptionName("--reset-timeout")] = Field(default=60.0, gt=0, allow_inf_nan=False)
    """Longest time until the environment has started an episode, seconds."""
    step_timeout_s: Annotated[float, OptionName("--step-timeout")] = Field(default=60.0, gt=0, allow_inf_nan=False)
    """Longest time of one step of the environment, seconds."""
    most_steps: int = Field(default=100, ge=1)
    """After so many steps the environment ends the episode."""


class Evaluation(VariableSection):
    """``[evaluation]``: the options of ``spanloop run``, here for versions whose job has ``--deploy``."""

    tasks: str = ""
    """A file of tasks, or another source of ``spanloop run``; empty decides from stored evaluations."""
    agent: str = ""
    """The agent's command, or ``module:function``."""
    attempts: int = Field(default=1, ge=1)
    """Attempts at each task."""
    parallel: int = Field(default=4, ge=1, le=1_000)
    """Attempts at the same time."""
    grader: str = ""
    """exact, numeric, regex, json, sql, code, rubric, reasoning-gym, one of a package, or MODULE:NAME; ``spanloop
    extensions graders`` lists them with their options. Empty leaves scoring to the agent."""
    grader_options: Annotated[dict[str, str], OptionName("--grader-option")] = Field(default_factory=dict[str, str])
    """Options of the grader."""
    answer: str = "line"
    """What is graded: ``line`` (the last line of stdout), ``stdout`` (all of it) or ``message`` (the last model
    call)."""
    timeout_s: Annotated[float, OptionName("--timeout")] = Field(default=600.0, gt=0, allow_inf_nan=False)
    """Longest time of one attempt, seconds."""
    cwd: Path | None = None
    """Working directory of the agent; without it that of ``spanloop up`` or ``spanloop run``."""
    environment: Annotated[dict[str, str], OptionName("--env")] = Field(default_factory=dict[str, str])
    """Further environment variables of the agent."""
    environment_settings: EnvironmentSettings | None = None
    """The environment that the agent acts in (a table with the keys of ``[environment]``); without it there is none."""
    reader: str = ""
    """The reader of the tasks (``spanloop extensions readers``); empty chooses by the source."""
    reader_options: Annotated[dict[str, str], OptionName("--reader-option")] = Field(default_factory=dict[str, str])
    """Options of the reader."""
    id_field: str = "id"
    """The field that is a task's id."""
    limit: int | None = Field(default=None, ge=1)
    """Only the first so many tasks."""
    seed: int = Field(default=0, ge=0)
    """Each attempt gets a seed that is derived from this one."""

    @model_validator(mode="after")
    def _has_tasks_and_agent(self) -> Self:
        if bool(self.tasks) != bool(self.agent):
            raise ValueError(f"tasks = {self.tasks!r} and agent = {self.agent!r}: set both, or none of them")
        return self
