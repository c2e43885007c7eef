"""Describe the settings of a job and of every recipe for options, form, job file and reference page.

Invariant: a field is described here without being named here, so a new field or recipe appears everywhere.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import Enum, StrEnum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, NamedTuple, get_args, get_origin

from annotated_types import Ge, Gt, Le
from pydantic import AwareDatetime, ValidationError
from pydantic.fields import FieldInfo

from spanloop.foundation.errors import ConfigurationError
from spanloop.training.recipes.base import Recipe
from spanloop.training.recipes.registry import DEFAULT_RECIPE, all_recipes
from spanloop.training.recipes.setting import Panel, Setting, setting_of

from .flat_settings import PARTS, RECIPE, job_fields
from .presets import Preset, preset_values

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
    recipes: tuple[str, ...]
    """The names of the recipes that use it; others refuse a value that is not the default."""
    defaults: Mapping[str, Any]
    """The default with each recipe that uses it; empty for a required field."""
    minimum: float | None
    """Smallest value in a form, which the validation may still refuse; None without one."""
    maximum: float | None
    setting: Setting
    preset: Preset | None
    """The preset that sets the defaults; None when they are the field's own."""

    @property
    def shared_default(self) -> object:
        """The default, when every recipe has the same one; else None."""
        values = list(self.defaults.values())
        return values[0] if values and all(value == values[0] for value in values) else None

    @property
    def choices(self) -> tuple[Enum, ...]:
        """The members of an enum; empty for other types."""
        return tuple(self.value_type) if issubclass(self.value_type, Enum) else ()

    @property
    def default_text(self) -> str:
        """The default for help and reference: ``required``, one value, or one value for each recipe."""
        if self.is_required:
            return "required"
        texts = {recipe: _text(default) for recipe, default in self.defaults.items()}
        if len(set(texts.values())) == 1:
            return next(iter(texts.values()))
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
    """Return every setting of a job and of all recipes, ``kind`` first, with the defaults of ``preset``.

    Raises:
        ConfigurationError: Two recipes have a setting of one name and different types.
    """
    recipes = all_recipes()
    fields = {"kind": _kind(recipes)}
    for name, field in job_fields().items():
        users = [recipe for recipe in recipes.values() if name not in recipe.unused_settings]
        defaults = {recipe.name: _default(name, field, recipe) for recipe in users}
        fields[name] = _described(name, field, defaults)
        if name == "name":
            fields["then"] = _then(recipes)
    for recipe in recipes.values():
        for name, field in recipe.model_fields.items():
            described = _described(name, field, {recipe.name: field.get_default()})
            fields[name] = _shared(fields[name], described, recipe) if name in fields else described
    values = preset_values(preset)
    return tuple(
        _with_default(field, preset, values[field.name]) if field.name in values else field for field in fields.values()
    )


def _kind(recipes: Mapping[str, type[Recipe]]) -> SpecField:
    """Return the setting that names the recipe."""
    make_enum: Any = StrEnum  # the names are known when it runs
    names: type[StrEnum] = make_enum("RecipeName", {name: name for name in recipes})
    summaries = [f"``{name}``: {_summary(recipe)}" for name, recipe in recipes.items()]
    return SpecField(
        name="kind",
        help=f"The recipe. {' '.join(summaries)}",
        value_type=names,
        is_list=False,
        is_optional=False,
        is_required=False,
        recipes=tuple(recipes),
        defaults=dict.fromkeys(recipes, names(DEFAULT_RECIPE)),
        minimum=None,
        maximum=None,
        setting=Setting(Panel.MODEL, is_basic=True),
        preset=None,
    )


def _then(recipes: Mapping[str, type[Recipe]]) -> SpecField:
    """Return the setting that adds stages."""
    return SpecField(
        name="then",
        help="A further stage, which starts from the version that the one before it made: ``setting=value`` words, as "
        "in ``kind=dpo steps=20``; in a job file also a table ``[[then]]``. What it leaves out is the job's, except "
        "settings whose default depends on the kind.",
        value_type=str,
        is_list=True,
        is_optional=False,
        is_required=False,
        recipes=tuple(recipes),
        defaults=dict.fromkeys(recipes, ()),
        minimum=None,
        maximum=None,
        setting=Setting(Panel.MODEL, is_of_job=True),
        preset=None,
    )


def _summary(recipe: type[Recipe]) -> str:
    return " ".join((recipe.__doc__ or "").split("\n\n")[0].split())


def _described(name: str, field: FieldInfo, defaults: Mapping[str, Any]) -> SpecField:
    value_type, is_list, is_optional = _value_type(field.annotation)
    limits = field.metadata
    return SpecField(
        name=name,
        help=" ".join((field.description or "").split()) + (_NONE_HELP if is_optional else ""),
        value_type=value_type,
        is_list=is_list,
        is_optional=is_optional,
        is_required=field.is_required(),
        recipes=tuple(defaults),
        defaults={} if field.is_required() else defaults,
        minimum=next((_number(limit.ge if isinstance(limit, Ge) else limit.gt) for limit in limits
                      if isinstance(limit, Ge | Gt)), None),
        maximum=next((_number(limit.le) for limit in limits if isinstance(limit, Le)), None),
        setting=setting_of(limits),
        preset=None,
    )  # fmt: skip


def _shared(first: SpecField, other: SpecField, recipe: type[Recipe]) -> SpecField:
    """Return the field of a setting that several recipes have."""
    for part in ("value_type", "is_list", "is_optional"):
        if getattr(first, part) != getattr(other, part):
            raise ConfigurationError(
                f"The setting {first.name} of the recipe {recipe.name} is {other.type_text}; expected "
                f"{first.type_text}, as in {', '.join(first.recipes)}.",
                next_step="Give the recipe's setting another name.",
            )
    return first._replace(recipes=(*first.recipes, *other.recipes), defaults={**first.defaults, **other.defaults})


def _default(name: str, field: FieldInfo, recipe: type[Recipe]) -> Any:
    return None if field.is_required() else recipe.default(name, field.get_default())


def _with_default(field: SpecField, preset: Preset, value: Any) -> SpecField:
    return field._replace(defaults=dict.fromkeys(field.defaults, field.value_type(value)), preset=preset)


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
    return tuple(_problem(detail["loc"], detail["msg"], detail.get("input")) for detail in error.errors())


def _problem(location: tuple[int | str, ...], message: str, value: Any) -> str:
    where = ".".join(str(part) for part in location if part not in {RECIPE, *PARTS})
    optional = {field.name for field in spec_fields() if field.is_optional}
    if where in optional:
        message += f", or {NONE_TEXT} for no limit"
    if "should match pattern" in message:
        message = "only letters, digits, '.', '_' and '-', beginning with a letter or digit; a version is NAME@v1"
    elif message == "Field required":
        return f"{where}: missing"
    message = message.removeprefix("Value error, ")
    message = message.removesuffix(".")
    return f"{where}: {message} (got {value!r})." if where else f"{message}."
