"""Translate flat settings into the parts of a specification.

Options of the command line, keys of a job file and the form are flat: the name of a setting occurs in one part only.
So are the jobs and schedules that versions without parts stored. A job file may have the parts as tables, too.

Invariant: :func:`split_settings` reverses :func:`flat_settings`. No setting is silently ignored: one that the recipe
does not use is dropped only when it has its default.
"""

from collections.abc import Mapping
from typing import Any, Final, cast

from pydantic import BaseModel

from spanloop.training.recipes.base import Recipe
from spanloop.training.recipes.registry import DEFAULT_RECIPE, all_recipes, recipe_class

from .defaults import LORA_LEARNING_RATE
from .episodes import Episodes
from .job_settings import JobSettings
from .optimiser import Optimiser
from .presets import preset_values, with_preset
from .run_settings import RunSettings

RECIPE: Final = "recipe"
"""The part with the recipe and its settings."""
PARTS: Final[Mapping[str, type[BaseModel]]] = {"episodes": Episodes, "optimiser": Optimiser, "run": RunSettings}
"""The other parts."""
STAGES: Final = ("then", "stages")
"""The further stages: what a user writes, and the specifications that come of it."""
_TOP: Final = ("base", "name", "held_out_share")
_FORMER: Final = {"ranks": "gpus_per_node"}
"""Settings by the names that earlier versions stored, and job files may have."""
_PART_OF: Final = {name: part for part, settings in PARTS.items() for name in settings.model_fields}


def split_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``settings``, flat or in parts, in parts; what they leave out has the recipe's or the preset's default.

    Raises:
        ValueError: There is no such recipe, it does not use a setting, or a part has a setting that is not its own.
    """
    flat = with_preset(flattened(settings))
    recipe = recipe_class(str(flat.pop("kind", DEFAULT_RECIPE)))
    _check_names(recipe)
    parts: dict[str, Any] = {RECIPE: {"kind": recipe.name}} | {part: {} for part in PARTS}
    for name, value in flat.items():
        if name in recipe.model_fields:
            parts[RECIPE][name] = value
        elif name in _PART_OF:
            parts[_PART_OF[name]][name] = value
        elif name in (*_TOP, *STAGES) or not _is_dropped(name, value, recipe, str(flat.get("preset", ""))):
            parts[name] = value
    for name, default in recipe.default_sources().items():
        if name in _PART_OF:
            parts[_PART_OF[name]].setdefault(name, _scaled(name, default.value, flat))
    return parts


def flattened(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the parts beside the others.

    Raises:
        ValueError: A part is no table, has a setting that is not its own, or one that is given beside it, too.
    """
    flat = with_new_names({name: value for name, value in settings.items() if name not in (RECIPE, *PARTS)})
    for part in (RECIPE, *PARTS):
        table = settings.get(part, {})
        if isinstance(table, Recipe):
            table = {"kind": table.kind} | {name: getattr(table, name) for name in type(table).model_fields}
        elif isinstance(table, BaseModel):
            table = {name: getattr(table, name) for name in type(table).model_fields}
        elif not isinstance(table, Mapping):
            raise ValueError(f"{part}: got {table!r}; expected a table of settings")  # noqa: TRY004 - pydantic reports a ValueError
        for name, value in with_new_names(cast("Mapping[str, Any]", table)).items():
            if part != RECIPE and name not in PARTS[part].model_fields:
                raise ValueError(f"{name}: no setting of the part {part}")
            if name in flat:
                raise ValueError(f"{name}: given twice, once in the part {part}")
            flat[name] = value
    return flat


def with_new_names(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``settings`` with the present name of each one that had another name.

    Raises:
        ValueError: One is given under both names.
    """
    duplicates = sorted(name for name, new in _FORMER.items() if {name, new} <= settings.keys())
    if duplicates:
        raise ValueError(f"{duplicates[0]}: given twice; {_FORMER[duplicates[0]]} is its name now")
    return {_FORMER.get(name, name): value for name, value in settings.items()}


def flat_settings(spec: JobSettings) -> dict[str, Any]:
    """Return the values of all settings of ``spec`` by name; those of ``then`` are the specifications of stages."""
    values = {name: getattr(spec, name) for name in type(spec).model_fields}
    stages = values.pop("stages", ())
    return flattened(values) | {"then": stages}


def job_fields() -> Mapping[str, Any]:
    """Return the fields of a job's settings but the recipe's, by name."""
    fields = {name: JobSettings.model_fields[name] for name in _TOP}
    return fields | {name: field for part in PARTS.values() for name, field in part.model_fields.items()}


def part_of(name: str) -> str:
    """Return the part that a setting belongs to; empty for the base, names and stages."""
    return "" if name in (*_TOP, *STAGES) else _PART_OF.get(name, RECIPE)


def _scaled(name: str, value: Any, flat: Mapping[str, Any]) -> Any:
    """Return the learning rate that a recipe has with LoRA; other defaults as they are."""
    has_lora = name == "learning_rate" and str(flat.get("lora_rank", 0)).strip() not in {"", "0"}
    return value * LORA_LEARNING_RATE if has_lora else value


def _check_names(recipe: type[Recipe]) -> None:
    taken = sorted(recipe.model_fields.keys() & {"kind", *_TOP, *STAGES, *_PART_OF})
    if taken:
        raise ValueError(f"kind: {', '.join(taken)} of the recipe {recipe.name} is a setting of every job; rename it")


def _is_dropped(name: str, value: Any, recipe: type[Recipe], preset: str) -> bool:
    """Whether it is a setting of other recipes, with its default.

    Raises:
        ValueError: It has another value.
    """
    users = [other for other in all_recipes().values() if name in other.model_fields]
    if not users:
        return False
    # JSON and TOML have lists where a setting has a tuple
    if any(value == default or value == [*_items(default)] for default in _defaults(name, users)):
        return True
    raise ValueError(unused_message(name, [user.name for user in users], recipe.name, preset))


def _defaults(name: str, users: list[type[Recipe]]) -> list[object]:
    return [user.model_fields[name].default for user in users]


def _items(default: object) -> tuple[object, ...]:
    return cast("tuple[object, ...]", default) if isinstance(default, tuple) else (object(),)


def unused_message(name: str, users: list[str], recipe: str, preset: str) -> str:
    """Return why a setting cannot have its value."""
    source = f"the preset {preset} sets it, but it is " if preset and name in preset_values(preset) else ""
    return f"{name}: {source}a {', '.join(sorted(users))} setting that {recipe} does not use"
