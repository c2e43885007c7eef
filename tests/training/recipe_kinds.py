"""The built-in recipes, and the settings of one from flat values, for tests."""

from typing import Any, TypeVar

from pydantic import BaseModel

from spanloop.training.recipes.base import LearnsFrom, Recipe
from spanloop.training.recipes.registry import RECIPE_POINT, find_recipe, recipe_names
from spanloop.training.spec.fields import spec_fields
from spanloop.training.spec.flat_settings import flat_settings
from spanloop.training.spec.job_spec import JobSpec
from spanloop.training.verl_plugin.train_plan import TrainPlan

Part = TypeVar("Part", bound=BaseModel)
KINDS = tuple(RECIPE_POINT.built_in)


def is_policy_gradient(kind: str) -> bool:
    return find_recipe(kind).learns_from is LearnsFrom.ROWS


POLICY_GRADIENTS = tuple(kind for kind in KINDS if is_policy_gradient(kind))


def flat_value(spec: JobSpec, setting: str) -> Any:
    """The value of a flat setting."""
    return flat_settings(spec)[setting]


def take_settings(kind: str, changes: dict[str, Any]) -> Recipe:
    """The recipe with its settings among ``changes``, which lose them; settings of other recipes are left out."""
    recipe = find_recipe(kind)
    others = {name for other in KINDS for name in find_recipe(other).model_fields} - set(recipe.model_fields)
    given = {name: changes.pop(name) for name in list(changes) if name in recipe.model_fields}
    for name in others & changes.keys():
        changes.pop(name)
    return recipe.model_validate(given)


def take_part(part: type[Part], defaults: dict[str, Any], changes: dict[str, Any]) -> Part:
    """A part of a plan with its settings among ``changes``, which lose those that a plan does not resolve itself."""
    given = {name: changes[name] for name in part.model_fields.keys() & changes.keys()}
    for name in given.keys() - TrainPlan.model_fields.keys():
        changes.pop(name)
    return part.model_validate(defaults | given)


def forget_recipes() -> None:
    """Let the entry points of packages be read again."""
    for cached in (recipe_names, find_recipe, spec_fields):
        cached.cache_clear()
