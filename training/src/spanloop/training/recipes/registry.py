"""Look up recipes by name: the built-in ones, and those that installed packages offer.

Invariant: names need no import. A class is imported when a job, a form or the help of ``spanloop train`` needs it.
"""

import logging
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Annotated, Any, Final, TypeAlias, cast

from pydantic import BeforeValidator, SerializeAsAny

from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.plugins import find_extension

from .base import Recipe

GROUP: Final = "spanloop.recipes"
"""The entry point group of recipes."""
DEFAULT_RECIPE: Final = "dr_grpo"
"""The recipe of the measured learning loop."""
BUILT_IN: Final[Mapping[str, str]] = {
    "dr_grpo": "dr_grpo:DrGrpo",
    "grpo": "grpo:Grpo",
    "rloo": "rloo:Rloo",
    "gspo": "gspo:Gspo",
    "reinforce_plus_plus": "reinforce_plus_plus:ReinforcePlusPlus",
    "ppo": "ppo:Ppo",
    "sft": "sft:Sft",
    "dpo": "dpo:Dpo",
}
"""Name → module of this package and class."""

_log: Final = logging.getLogger(__name__)


@cache
def recipe_names() -> tuple[str, ...]:
    """Return the names of all recipes, the built-in ones first."""
    offered = {point.name for point in entry_points(group=GROUP)}
    return (*BUILT_IN, *sorted(offered - BUILT_IN.keys()))


@cache
def find_recipe(name: str) -> type[Recipe]:
    """Return the class of a recipe.

    Raises:
        ConfigurationError: There is no such recipe, it cannot be imported, or it is not a recipe of this name.
    """
    if name in BUILT_IN:
        module, _, class_name = BUILT_IN[name].partition(":")
        return cast("type[Recipe]", getattr(import_module(f".{module}", __package__), class_name))
    if name not in recipe_names():
        raise ConfigurationError(
            f"No recipe is called {name!r}.",
            next_step=f"Known: {', '.join(recipe_names())}; or install the package that offers it (entry points of "
            f"the group {GROUP}).",
        )
    recipe = find_extension(name, group=GROUP, what="recipe", built_in={})
    if not (isinstance(recipe, type) and issubclass(recipe, Recipe) and recipe.name == name):
        raise ConfigurationError(
            f"Entry point {name!r} of group {GROUP} is {recipe!r}; expected a class derived from {Recipe.__module__}."
            f"{Recipe.__name__} whose name is {name!r}.",
            next_step="Correct the package that offers it, or uninstall it.",
        )
    return recipe


def all_recipes() -> dict[str, type[Recipe]]:
    """Return the recipes by name; one that cannot be imported is logged and left out."""
    recipes: dict[str, type[Recipe]] = {}
    for name in recipe_names():
        try:
            recipes[name] = find_recipe(name)
        except ConfigurationError as error:
            _log.warning("recipe %s is left out: %s", name, error)
    return recipes


def parse_recipe(value: Any) -> Recipe:
    """Return the recipe of a table of its settings and its ``kind``, or of its name alone.

    Raises:
        ValueError: There is no such recipe, or a setting is invalid (a ``ValidationError`` of pydantic).
    """
    if isinstance(value, Recipe):
        return value
    settings = dict(cast("Mapping[str, Any]", value)) if isinstance(value, Mapping) else {"kind": value}
    name = str(settings.pop("kind", DEFAULT_RECIPE))
    return recipe_class(name).model_validate(settings)


def recipe_class(name: str) -> type[Recipe]:
    """Return the class of a recipe.

    Raises:
        ValueError: As :func:`find_recipe`, for validators.
    """
    try:
        return find_recipe(name)
    except ConfigurationError as error:
        raise ValueError(f"kind: {error.what} {error.next_step}") from error


AnyRecipe: TypeAlias = Annotated[SerializeAsAny[Recipe], BeforeValidator(parse_recipe)]
"""A field with a recipe of any kind."""
