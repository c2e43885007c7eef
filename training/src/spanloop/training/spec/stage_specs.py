"""The specifications of a job's stages, made of the job's settings and the texts of its further stages.

Invariant: a stage has no stages of its own. What its text leaves out is the job's setting, except a setting whose
default depends on the kind, which has the default of the stage's kind.
"""

from typing import TypeVar

from pydantic import ValidationError

from .defaults import HELD_OUT_SHARE
from .fields import SpecField, problems, read_none, spec_fields
from .flat_settings import flat_settings
from .job_settings import JobSettings
from .stage_text import parse_stage

Settings = TypeVar("Settings", bound=JobSettings)


def stage_specs(spec: Settings) -> tuple[Settings, ...]:
    """Return the specification of each stage, of the same class as ``spec``; one for a job without ``then``.

    Raises:
        ValueError: A stage is invalid; the message has its number and the setting.
    """
    first = spec.changed(then=(), held_out_share=HELD_OUT_SHARE)
    return (first, *(_stage_spec(spec, text, number) for number, text in enumerate(spec.then, 2)))


def _stage_spec(spec: Settings, text: str, number: int) -> Settings:
    fields = {field.name: field for field in spec_fields()}
    given = parse_stage(text, frozenset(name for name, field in fields.items() if field.is_list))
    for name in given:
        if name not in fields:
            raise ValueError(f"then: stage {number}: {name} is no setting of a training job")
        if fields[name].setting.is_of_job:
            raise ValueError(f"then: stage {number}: {name} is a setting of the whole job")
    try:
        kind = type(spec).model_validate({"base": spec.base, "kind": given.get("kind", spec.kind)}).kind
        values = flat_settings(spec)
        inherited = {name: values[name] for name, field in fields.items() if _is_inherited(field, spec.kind, kind)}
        return type(spec).model_validate(inherited | {"base": spec.base, "name": spec.name} | read_none(given))
    except ValidationError as error:
        raise ValueError(f"then: stage {number}: {' '.join(problems(error))}") from error


def _is_inherited(field: SpecField, before: str, kind: str) -> bool:
    setting = field.setting
    is_own = setting.is_of_job or setting.is_of_stage or field.name == "kind"
    if is_own or not {before, kind} <= set(field.recipes):
        return False
    return bool(field.defaults[before] == field.defaults[kind])
