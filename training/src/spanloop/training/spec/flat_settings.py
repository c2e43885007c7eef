"""Translate flat settings into the parts of a specification.

Options of the command line, keys of a job file and the form are flat: the name of a setting occurs in one part only.
So are the jobs and schedules that versions without recipe classes stored.

Invariant: :func:`split_settings` reverses :func:`flat_settings`. No setting is silently ignored: one that the recipe
does not use is dropped only when it has its default.
"""

from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel

from spanloop.training.recipes.base import Recipe
from spanloop.training.recipes.registry import DEFAULT_RECIPE, all_recipes, recipe_class

from .presets import preset_values

RECIPE: Final = "recipe"
"""The part with the recipe and its settings."""


def split_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``settings`` in parts; they may be in parts already.

    Raises:
        ValueError: There is no such recipe, or it does not use a setting.
    """
    if RECIPE in settings:
        return dict(settings)
    recipe = recipe_class(str(settings.get("kind", DEFAULT_RECIPE)))
    own = {"kind": recipe.name}
    others: dict[str, Any] = {}
    for name, value in settings.items():
        if name in recipe.model_fields:
            own[name] = value
        elif name != "kind" and not _is_dropped(name, value, recipe, str(settings.get("preset", ""))):
            others[name] = value
    return {RECIPE: own, **others}


def flat_settings(spec: BaseModel) -> dict[str, Any]:
    """Return the values of all settings of ``spec``, by name."""
    values = {name: getattr(spec, name) for name in type(spec).model_fields}
    recipe: Recipe = values.pop(RECIPE)
    return {"kind": recipe.kind, **values, **{name: getattr(recipe, name) for name in type(recipe).model_fields}}


def _is_dropped(name: str, value: Any, recipe: type[Recipe], preset: str) -> bool:
    """Whether it is a setting of other recipes, with its default.

    Raises:
        ValueError: It has another value.
    """
    users = [other for other in all_recipes().values() if name in other.model_fields]
    if not users:
        return False
    comparable = tuple(value) if isinstance(value, list) else value
    if any(comparable == user.model_fields[name].default for user in users):
        return True
    raise ValueError(unused_message(name, [user.name for user in users], recipe.name, preset))


def unused_message(name: str, users: list[str], recipe: str, preset: str) -> str:
    """Return why a setting cannot have its value."""
    source = f"the preset {preset} sets it, but it is " if preset and name in preset_values(preset) else ""
    return f"{name}: {source}a {', '.join(sorted(users))} setting that {recipe} does not use"
