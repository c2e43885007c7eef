"""Look up recipes by name: the built-in ones, and those that installed packages offer.

Invariant: names need no import. A class is imported when a job, a form or the help of ``spanloop train`` needs it.
"""

import logging
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Final, TypeAlias, cast

from pydantic import BeforeValidator, SerializeAsAny

from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.plugins import ExtensionPoint

from .base import Recipe

DEFAULT_RECIPE: Final = "dr_grpo"
"""The recipe of the measured learning loop."""
_HERE: Final = __package__
RECIPE_POINT: Final = ExtensionPoint[Recipe](
    what="recipe",
    group="spanloop.recipes",
    base=Recipe,
    built_in={
        "dr_grpo": f"{_HERE}.dr_grpo:DrGrpo",
        "grpo": f"{_HERE}.grpo:Grpo",
        "rloo": f"{_HERE}.rloo:Rloo",
        "gspo": f"{_HERE}.gspo:Gspo",
        "reinforce_plus_plus": f"{_HERE}.reinforce_plus_plus:ReinforcePlusPlus",
        "ppo": f"{_HERE}.ppo:Ppo",
        "sft": f"{_HERE}.sft:Sft",
        "dpo": f"{_HERE}.dpo:Dpo",
    },
)

_log: Final = logging.getLogger(__name__)


@cache
def recipe_names() -> tuple[str, ...]:
    """Return the names of all recipes, the built-in ones first."""
    return RECIPE_POINT.names


@cache
def find_recipe(name: str) -> type[Recipe]:
    """Return the class of a recipe.

    Raises:
        ConfigurationError: There is no such recipe, it cannot be imported, or it is not a recipe of this name.
    """
    if name not in recipe_names():
        raise ConfigurationError(
            f"No recipe is called {name!r}.",
            next_step=f"Known: {', '.join(recipe_names())}; or install the package that offers it.",
        )
    recipe = RECIPE_POINT.find_class(name)
    if recipe.name != name:
        raise ConfigurationError(
            f"Recipe {name!r} is {recipe.__name__} with the name {recipe.name!r}; expected a class whose name is "
            f"{name!r}.",
            next_step="Give the class the name of its entry point, or update the package that offers it.",
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
