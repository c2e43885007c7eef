"""``[evaluation]``: the tasks that a job's new version attempts before the promotion rule decides about it."""

import json
from pathlib import Path
from typing import Annotated, Self, cast

from pydantic import Field, field_validator, model_validator

from .section import OptionName, Section, VariableSection


def as_texts(options: object) -> object:
    """Return options of a file as they are typed: ``{"weights": {"timing": 0}}`` is ``{"weights.timing": "0"}``."""
    if not isinstance(options, dict):
        return options
    texts: dict[str, object] = {}
    for name, value in cast("dict[str, object]", options).items():
        match value:
            case dict():
                nested = cast("dict[str, object]", as_texts(cast("dict[str, object]", value)))
                texts |= {f"{name}.{inner}": each for inner, each in nested.items()}
            case str():
                texts[name] = value
            case bool() | int() | float() | list():
                texts[name] = json.dumps(value, ensure_ascii=False)
            case _:
                texts[name] = value
    return texts


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
    check_timeout_s: Annotated[float, OptionName("--check-timeout")] = Field(default=30.0, gt=0, allow_inf_nan=False)
    """Longest time until the environment has started a first episode, before a loop begins anything, seconds."""
    most_steps: int = Field(default=100, ge=1)
    """After so many steps the environment ends the episode."""

    @field_validator("options", mode="before")
    @classmethod
    def _flat(cls, options: object) -> object:
        return as_texts(options)


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
    pool: bool = False
    """Let runners make the attempts, on any host: ``spanloop serve runner --attempt-slots N``."""
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
    """Only the first so many tasks; with ``type_weights`` so many drawn tasks."""
    split: str = ""
    """Only tasks of this split; empty takes all."""
    splits: dict[str, float] = Field(default_factory=dict[str, float])
    """Splits as NAME=SHARE; a digest of a task's content decides. Without them the field ``split_field`` names it."""
    split_field: str = "split"
    """The field that names a task's split."""
    type_weights: Annotated[dict[str, float], OptionName("--type-weight")] = Field(default_factory=dict[str, float])
    """Weights of types of tasks as TYPE=WEIGHT: how often each is drawn; 0, or none, leaves a type out."""
    type_field: str = "type"
    """The field that names a task's type."""
    pass_rate_of: str = ""
    """Only tasks with a suitable pass rate of this NAME@VERSION, or that it has not attempted."""
    min_pass_rate: float = Field(default=0.0, ge=0, le=1)
    """Smallest pass rate, from 0 to 1."""
    max_pass_rate: float = Field(default=1.0, ge=0, le=1)
    """Largest pass rate, from 0 to 1."""
    seed: int = Field(default=0, ge=0)
    """Each attempt gets a seed that is derived from this one."""

    @field_validator("grader_options", "reader_options", mode="before")
    @classmethod
    def _flat(cls, options: object) -> object:
        return as_texts(options)

    @model_validator(mode="after")
    def _has_tasks_and_agent(self) -> Self:
        if bool(self.tasks) != bool(self.agent):
            raise ValueError(f"tasks = {self.tasks!r} and agent = {self.agent!r}: set both, or none of them")
        return self
