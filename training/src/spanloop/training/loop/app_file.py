"""``app.toml``: an agent, its tasks, and how it learns.

Invariant: the file has no schema of its own. ``[run]`` and ``[evaluation]`` are the options of ``spanloop run``,
``[environment]`` those of the environment that both act in, each ``[[train]]`` is a job file, ``[promotion]`` is the
rule. A key that is not known is refused before anything starts.
"""

import tomllib
from pathlib import Path
from typing import Annotated, Any, Final, Self, cast

from pydantic import Field, StringConstraints, ValidationError, model_validator

from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.settings import EnvironmentSettings, Evaluation, Promotion
from spanloop.foundation.settings.invalid_keys import problems_of_file
from spanloop.foundation.settings.section import Section
from spanloop.foundation.version_names import NAME_PATTERN
from spanloop.training.recipes.choices import Tokens
from spanloop.training.recipes.text import RendersText
from spanloop.training.spec.job_file import build_spec
from spanloop.training.spec.job_spec import JobSpec

from .budget import Budget

UNKNOWN: Final = "FILL IN"
"""What ``spanloop init`` writes for a value that stored spans do not tell."""
_INHERITED: Final = (
    "agent", "grader", "grader_options", "answer", "timeout_s", "cwd", "environment", "parallel", "pool", "id_field",
    "environment_settings", "splits", "split_field", "type_field",
)  # fmt: skip
_NEXT: Final = "docs/how-to/loop.md explains the file; spanloop init writes one."


class LoopModel(Section):
    """``[model]``: the model that the agent calls and that learns."""

    name: Annotated[str, StringConstraints(pattern=rf"^{NAME_PATTERN}$")]
    """Its name in the registry (``spanloop models list``)."""
    source: str = ""
    """Where it comes from when it is not registered yet, as for ``spanloop models add``: a folder, a hub id,
    ``pypi:PACKAGE`` or ``smollm2``."""
    called: tuple[str, ...] = ()
    """Further names by which the agent calls it, such as ``gpt-4o-mini`` in its source; the gateway answers to them."""


class App(Section):
    """The whole file."""

    model: LoopModel
    run: Evaluation
    """How the champion attempts the training tasks in each round."""
    evaluation: Evaluation
    """How champion and candidate attempt the evaluation's tasks; what it leaves out is as in ``[run]``, except the
    tasks, their reader and limit, the attempts and the seed."""
    environment: EnvironmentSettings | None = None
    """The environment that the agent acts in, in ``[run]`` and in ``[evaluation]``; without it there is none."""
    train: tuple[JobSpec, ...]
    """The training of each round; the last one is that of all further rounds."""
    promotion: Promotion | None = None
    """The rule; without it that of ``spanloop.toml``."""
    budget: Budget = Field(default=Budget())
    """What all rounds may cost together."""

    @model_validator(mode="after")
    def _limits_what_it_makes(self) -> Self:
        if self.budget.limits_attempts and (self.run.pool or self.evaluation.pool):
            raise ValueError("budget: the host of the loop limits attempts that it makes itself; leave pool out")
        return self

    def training(self, number: int) -> JobSpec:
        """Return the job of a round, from 1."""
        return self.train[min(number, len(self.train)) - 1]

    def collects(self, number: int) -> bool:
        """Whether a round trains on attempts, and not on demonstrations alone."""
        recipe = self.training(number).recipe
        return not (isinstance(recipe, RendersText) and recipe.tokens is Tokens.NONE)


def read_app(path: Path) -> App:
    """Read and check the file; relative paths in it start at its folder, which must be the working directory.

    Raises:
        ConfigurationError: It cannot be read, has a key that is not known, or a value that is invalid or not filled in.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigurationError(f"There is no file {path}.", next_step=f"Write one: spanloop init {path}") from error
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}.", next_step=_NEXT) from error
    _check_filled_in(path, document)
    settings = dict(document)
    for table in ("run", "evaluation"):
        settings[table] = _evaluation(path, document, table)
    settings["train"] = _trainings(path, document)
    try:
        return App.model_validate(settings)
    except ValidationError as error:
        raise ConfigurationError(f"{path}: {problems_of_file(App, error)}", next_step=_NEXT) from error


def _evaluation(path: Path, document: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a table of ``spanloop run``'s options with what it inherits.

    Raises:
        ConfigurationError: It is missing, is no table, or has no tasks.
    """
    table = document.get(name)
    if not isinstance(table, dict):
        raise ConfigurationError(f"{path}: [{name}]: expected a table with tasks, got {table!r}.", next_step=_NEXT)
    values = cast("dict[str, Any]", table)
    if name == "evaluation" and isinstance(inherited := document.get("run"), dict):
        of_run = cast("dict[str, Any]", inherited)
        kept = [key for key in _INHERITED if not ("grader" in values and key == "grader_options")]
        values = {key: of_run[key] for key in kept if key in of_run} | values
    for key in ("tasks", "agent"):
        if not values.get(key):
            raise ConfigurationError(f"{path}: [{name}] has no {key}.", next_step=_NEXT)
    shared = {"environment_settings": document["environment"]} if "environment" in document else {}
    return {"cwd": path.absolute().parent} | shared | values


def _trainings(path: Path, document: dict[str, Any]) -> tuple[JobSpec, ...]:
    tables = document.get("train", [{}])
    model = document.get("model")
    name = str(cast("dict[str, Any]", model).get("name", "")) if isinstance(model, dict) else ""
    given: list[Any] = [*tables] if isinstance(tables, list) else [tables]
    specs: list[JobSpec] = []
    for number, table in enumerate(given or [{}], 1):
        where = f"{path}: [[train]] {number}"
        if not isinstance(table, dict):
            raise ConfigurationError(f"{where}: expected a table of settings, got {table!r}.", next_step=_NEXT)
        settings = cast("dict[str, Any]", table)
        spec = build_spec({"base": name or "model"} | settings, where=where)
        for key, value in (("base", spec.base.partition("@")[0]), ("name", spec.result_name)):
            if name and value != name:
                raise ConfigurationError(
                    f"{where}: {key} is {settings[key]!r}, and [model] is {name!r}: a round trains the champion of its "
                    "model.",
                    next_step=f"Leave {key} out.",
                )
        specs.append(spec)
    return tuple(specs)


def _check_filled_in(path: Path, document: dict[str, Any]) -> None:
    missing = list(_not_filled_in(document, ""))
    if missing:
        raise ConfigurationError(
            f"{path}: {', '.join(missing)}: not filled in yet.",
            next_step=f"Replace each {UNKNOWN!r}; the comment above it says what is expected.",
        )


def _not_filled_in(value: Any, place: str) -> "list[str]":
    if isinstance(value, str):
        return [place] if UNKNOWN in value else []
    if isinstance(value, dict):
        items = [(f"{place}.{key}".removeprefix("."), each) for key, each in cast("dict[str, Any]", value).items()]
    elif isinstance(value, list):
        values: list[Any] = [*value]
        items = [(f"{place}[{index}]", each) for index, each in enumerate(values, 1)]
    else:
        return []
    return [name for key, each in items for name in _not_filled_in(each, key)]
