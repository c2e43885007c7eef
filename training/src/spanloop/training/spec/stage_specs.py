"""The settings of a job's further stages, made of the first stage's and of what the user gives for each.

Invariant: what a stage leaves out is the first stage's setting, except a setting whose default depends on the recipe,
which has the default of the stage's recipe.
"""

from collections.abc import Mapping
from typing import Any, cast

from pydantic import ValidationError

from spanloop.training.recipes.registry import recipe_class

from .fields import SpecField, problems, read_none, spec_fields
from .flat_settings import flat_settings, flattened, with_new_names
from .job_settings import JobSettings
from .stage_text import parse_stage
from .verl_overrides import stage_values


def stage_settings(first: JobSettings, stage: object, number: int) -> dict[str, Any]:
    """Return the flat settings of a stage.

    Args:
        first: The first stage.
        stage: ``setting=value`` words, or a table of a job file.
        number: Of the stage, from 2.

    Raises:
        ValueError: A name is no setting of a stage; the message has the number and the name.
    """
    fields = {field.name: field for field in spec_fields()}
    lists = frozenset(name for name, field in fields.items() if field.is_list)
    if isinstance(stage, Mapping):
        given = flattened(stage_values(cast("Mapping[str, Any]", stage)))
    else:
        given = with_new_names(parse_stage(str(stage), lists))
    for name in given:
        if name not in fields:
            raise ValueError(f"then: stage {number}: {name} is no setting of a training job")
        if fields[name].setting.is_of_job:
            raise ValueError(f"then: stage {number}: {name} is a setting of the whole job")
    kind = recipe_class(str(given.get("kind", first.kind))).name
    values = flat_settings(first)
    inherited = {name: values[name] for name, field in fields.items() if _is_inherited(field, first.kind, kind)}
    return inherited | {"base": first.base, "name": first.name} | read_none(given)


def stage_problem(error: ValidationError, number: int) -> str:
    """Return what is wrong with a stage."""
    return f"then: stage {number}: {' '.join(problems(error))}"


def _is_inherited(field: SpecField, before: str, kind: str) -> bool:
    setting = field.setting
    is_own = setting.is_of_job or setting.is_of_stage or field.name == "kind"
    if is_own or not {before, kind} <= set(field.recipes):
        return False
    return bool(field.defaults[before] == field.defaults[kind])
