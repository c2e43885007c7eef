"""Describe the fields of :class:`JobSpec` to whatever asks a user for them: options, form, job file, reference page.

Invariant: a field of ``JobSpec`` is described here without being named here, so a new field appears everywhere.
"""

import difflib
import tomllib
from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Final, NamedTuple, get_args, get_origin

from annotated_types import Ge, Gt, Le
from pydantic import AwareDatetime, ValidationError
from pydantic.fields import FieldInfo

from spanloop.foundation.errors import ConfigurationError
from spanloop.training.jobs.kinds import JobKind

from .job_spec import JobSpec
from .presets import Preset, preset_values
from .setting import Setting, setting_of

NONE_TEXT: Final = "none"
"""Written for None, in an option, a job file and the form: TOML has no null."""


class SpecField(NamedTuple):
    """One setting of a training job."""

    name: str
    help: str
    """The field's docstring."""
    value_type: type[Any]
    """``bool``, ``int``, ``float``, ``str``, ``datetime`` or an enum; of the elements when ``is_list``."""
    is_list: bool
    is_optional: bool
    """None is a value, written ``none``."""
    is_required: bool
    defaults: Mapping[JobKind, Any]
    """The default of each kind of job; empty for a required field."""
    minimum: float | None
    """Smallest value in a form, which the validation may still refuse; None without one."""
    maximum: float | None
    setting: Setting
    preset: Preset | None
    """The preset that sets the defaults; None when they are the field's own."""

    @property
    def shared_default(self) -> object:
        """The default, when every kind has the same one; else None."""
        values = list(self.defaults.values())
        return values[0] if values and all(value == values[0] for value in values) else None

    @property
    def choices(self) -> tuple[Enum, ...]:
        """The members of an enum; empty for other types."""
        return tuple(self.value_type) if issubclass(self.value_type, Enum) else ()

    @property
    def default_text(self) -> str:
        """The default for help and reference: ``required``, one value, or one value for each kind."""
        if self.is_required:
            return "required"
        kinds = [kind for kind in JobKind if kind in self.setting.kinds]
        texts = {kind: _text(self.defaults[kind]) for kind in kinds}
        if len(set(texts.values())) == 1:
            return texts[kinds[0]]
        return ", ".join(f"{kind}: {text}" for kind, text in texts.items())

    @property
    def type_text(self) -> str:
        """The type for the reference, an enum's values included."""
        name = " | ".join(str(item.value) for item in self.choices) or self.value_type.__name__
        if self.is_optional:
            return f"{name} | {NONE_TEXT}"
        return f"list of {name}" if self.is_list else name


_NONE_HELP: Final = f" ``{NONE_TEXT}``: no limit."


@cache
def spec_fields(preset: Preset = Preset.ANY) -> tuple[SpecField, ...]:
    """Return every field of :class:`JobSpec` in its order, with the defaults of ``preset``."""
    fields = tuple(_described(name, field) for name, field in JobSpec.model_fields.items())
    values = preset_values(preset)
    return tuple(
        _with_default(field, preset, values[field.name]) if field.name in values else field for field in fields
    )


def _described(name: str, field: FieldInfo) -> SpecField:
    value_type, is_list, is_optional = _value_type(field.annotation)
    limits = field.metadata
    return SpecField(
        name=name,
        help=" ".join((field.description or "").split()) + (_NONE_HELP if is_optional else ""),
        value_type=value_type,
        is_list=is_list,
        is_optional=is_optional,
        is_required=field.is_required(),
        defaults={} if field.is_required() else {kind: _default(field, kind) for kind in JobKind},
        minimum=next((_number(limit.ge if isinstance(limit, Ge) else limit.gt) for limit in limits
                      if isinstance(limit, Ge | Gt)), None),
        maximum=next((_number(limit.le) for limit in limits if isinstance(limit, Le)), None),
        setting=setting_of(limits),
        preset=None,
    )  # fmt: skip


def _default(field: FieldInfo, kind: JobKind) -> Any:
    return field.get_default(call_default_factory=True, validated_data={"kind": kind})


def _with_default(field: SpecField, preset: Preset, value: Any) -> SpecField:
    return field._replace(defaults=dict.fromkeys(JobKind, field.value_type(value)), preset=preset)


def _number(value: Any) -> float:
    return int(value) if isinstance(value, int) else float(value)


def _value_type(annotation: Any) -> tuple[type[Any], bool, bool]:
    if get_origin(annotation) is UnionType:
        (inner,) = (each for each in get_args(annotation) if each is not NoneType)
        return (*_value_type(inner)[:2], True)
    if get_origin(annotation) is tuple:
        return get_args(annotation)[0], True, False
    return (datetime if annotation is AwareDatetime else annotation), False, False


def _text(value: object) -> str:
    if value is None or value in ("", ()):
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def read_job_file(path: Path) -> dict[str, Any]:
    """Return the settings in a TOML file; their values are not validated yet.

    Raises:
        ConfigurationError: The file cannot be read, is not TOML, or has a key that is no setting.
    """
    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigurationError(
            f"There is no job file {path}.", next_step="Check the path; a model's name does not end with .toml here."
        ) from error
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"The job file {path} cannot be read: {error}.", next_step='Write settings as TOML, as base = "mine".'
        ) from error
    check_names(settings, where=str(path))
    return settings


def check_names(settings: Mapping[str, Any], *, where: str) -> None:
    """Refuse names that are no setting.

    Raises:
        ConfigurationError: It has the nearest name of a setting.
    """
    names = [field.name for field in spec_fields()]
    for name in settings:
        if name not in names:
            nearest = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
            hint = f"Did you mean {nearest[0]}? " if nearest else ""
            raise ConfigurationError(
                f"{where}: {name} is no setting of a training job.",
                next_step=f"{hint}spanloop train --help lists all of them.",
            )


def build_spec(settings: Mapping[str, Any], *, where: str) -> JobSpec:
    """Return the spec of ``settings``; what they leave out has the kind's default.

    Raises:
        ConfigurationError: Names every invalid setting.
    """
    check_names(settings, where=where)
    try:
        return JobSpec.model_validate(read_none(settings))
    except ValidationError as error:
        raise ConfigurationError(
            f"{where}: the job's settings are invalid: {'; '.join(problems(error))}",
            next_step="spanloop train --help explains each of them.",
        ) from error


def read_none(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``settings`` with None for the text ``none``, where a setting can be None."""
    optional = {field.name for field in spec_fields() if field.is_optional}
    return {name: None if name in optional and _is_none(value) else value for name, value in settings.items()}


def _is_none(value: Any) -> bool:
    return isinstance(value, str) and value.strip().lower() == NONE_TEXT


def problems(error: ValidationError) -> tuple[str, ...]:
    """Return one sentence for each invalid setting, with its name and value."""
    # pydantic adds one for each default that depends on the kind, as soon as any other field is invalid
    own = [detail for detail in error.errors() if detail["type"] != "default_factory_not_called"]
    return tuple(_problem(detail["loc"], detail["msg"], detail.get("input")) for detail in own)


def _problem(location: tuple[int | str, ...], message: str, value: Any) -> str:
    where = ".".join(str(part) for part in location)
    optional = {field.name for field in spec_fields() if field.is_optional}
    if where in optional:
        message += f", or {NONE_TEXT} for no limit"
    if "should match pattern" in message:
        message = "only letters, digits, '.', '_' and '-', beginning with a letter or digit; a version is NAME@v1"
    elif message == "Field required":
        return f"{where}: missing"
    message = message.removeprefix("Value error, ")
    return f"{where}: {message} (got {value!r})." if where else f"{message}."
