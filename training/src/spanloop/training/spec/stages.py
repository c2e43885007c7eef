"""The stages of a job: several trainings in a row, each from the version that the one before it made.

Invariant: a stage is a ``JobSpec`` without stages of its own. What its text leaves out is the job's setting, except a
setting whose default depends on the kind, which has the default of the stage's kind.
"""

from typing import NamedTuple

from pydantic import ValidationError

from spanloop.training.jobs.kinds import JobKind

from .fields import SpecField, problems, read_none, spec_fields
from .job_spec import JobSpec
from .stage_text import parse_stage


class Stage(NamedTuple):
    """One training of a job."""

    number: int
    """From 1."""
    total: int
    """Number of the job's stages."""
    spec: JobSpec
    """Its ``base`` is the job's; a later stage starts from the version before it."""
    held_out_share: float
    """Share of the groups that are held out for the gate; 0 for the last stage, which has no gate."""

    @property
    def title(self) -> str:
        """``stage 1 of 2 (sft)``."""
        return f"stage {self.number} of {self.total} ({self.spec.kind})"

    def starting_from(self, reference: str) -> "Stage":
        """Return the stage with the version that it starts from."""
        return self._replace(spec=self.spec.model_copy(update={"base": reference}))


def stages_of(spec: JobSpec) -> tuple[Stage, ...]:
    """Return the stages of a job; one for a job without ``then``.

    Raises:
        ValueError: A stage is invalid; the message has its number and the setting.
    """
    total = 1 + len(spec.then)
    first = spec.model_copy(update={"then": (), "held_out_share": _default_share()})
    specs = [first, *(_stage_spec(spec, text, number) for number, text in enumerate(spec.then, 2))]
    return tuple(
        Stage(number, total, stage, spec.held_out_share if number < total else 0.0)
        for number, stage in enumerate(specs, 1)
    )


def _stage_spec(spec: JobSpec, text: str, number: int) -> JobSpec:
    fields = {field.name: field for field in spec_fields()}
    given = parse_stage(text, frozenset(name for name, field in fields.items() if field.is_list))
    for name in given:
        if name not in fields:
            raise ValueError(f"then: stage {number}: {name} is no setting of a training job")
        if fields[name].setting.is_of_job:
            raise ValueError(f"then: stage {number}: {name} is a setting of the whole job")
    try:
        kind = JobSpec.model_validate({"base": spec.base, "kind": given.get("kind", spec.kind)}).kind
        inherited = {name: getattr(spec, name) for name, field in fields.items() if _is_inherited(field, spec, kind)}
        return JobSpec.model_validate(inherited | {"base": spec.base, "name": spec.name} | read_none(given))
    except ValidationError as error:
        raise ValueError(f"then: stage {number}: {' '.join(problems(error))}") from error


def _is_inherited(field: SpecField, spec: JobSpec, kind: JobKind) -> bool:
    if field.setting.is_of_job or field.name == "kind" or not {spec.kind, kind} <= field.setting.kinds:
        return False
    return bool(field.defaults[spec.kind] == field.defaults[kind])


def _default_share() -> float:
    return float(JobSpec.model_fields["held_out_share"].default)
