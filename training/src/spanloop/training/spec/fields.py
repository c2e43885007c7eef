"""Describe the fields of :class:`JobSettings` for options, form, job file and reference page.

Invariant: a field of ``JobSettings`` is described here without being named here, so a new field appears everywhere.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, NamedTuple, get_args, get_origin

from annotated_types import Ge, Gt, Le
from pydantic import AwareDatetime, ValidationError
from pydantic.fields import FieldInfo

from spanloop.training.jobs.kinds import JobKind

from .job_settings import JobSettings
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
    """Return every field of :class:`JobSettings` in its order, with the defaults of ``preset``."""
    fields = tuple(_described(name, field) for name, field in JobSettings.model_fields.items())
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
