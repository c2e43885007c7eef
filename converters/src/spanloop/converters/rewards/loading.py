"""Reward functions by name: built in, out of an installed package, or from a module of the user's.

A package offers one with an entry point in the group ``spanloop.rewards``; ``module:function`` names any importable
callable, such as ``my_rewards:exact_answers``, made there with the settings that it needs.
"""

import importlib
from collections.abc import Iterable
from importlib.metadata import entry_points
from typing import Final, cast

from spanloop.semconv.errors import ConfigurationError

from .agent import AgentReward
from .attempt import NamedReward, RewardFunction
from .measures import Latency

GROUP: Final = "spanloop.rewards"
BUILT_IN: Final[dict[str, RewardFunction]] = {"agent": AgentReward(), "latency": Latency()}
"""Those that need no settings."""


def reward_functions(references: Iterable[str]) -> tuple[NamedReward, ...]:
    """The functions that ``references`` name, in their order.

    Each is a name, ``module:function``, or either after ``stored-name=``.

    Raises:
        ConfigurationError: When one cannot be found or called, or two would be stored under one name.
    """
    found: dict[str, NamedReward] = {}
    for reference in references:
        named = _named(reference.strip())
        if named.name in found:
            raise ConfigurationError(
                f"Two reward functions would be stored as {named.name!r}.",
                next_step=f"Name one of them: other={reference}.",
            )
        found[named.name] = named
    return tuple(found.values())


def _named(reference: str) -> NamedReward:
    given, separator, target = reference.rpartition("=")
    function = _find(target)
    if not callable(function):
        raise ConfigurationError(
            f"Reward {target!r} is {type(function).__name__}, expected a callable from an attempt to a reward.",
            next_step="See docs/how-to/define-rewards.md for the form of a reward function.",
        )
    name = given if separator else target.rpartition(":")[2]
    return NamedReward(name, cast("RewardFunction", function))


def _find(target: str) -> object:
    if target in BUILT_IN:
        return BUILT_IN[target]
    if ":" in target:
        return _imported(target)
    offered = {point.name: point for point in entry_points(group=GROUP)}
    if target not in offered:
        raise ConfigurationError(
            f"No reward function is called {target!r}.",
            next_step=f"Known: {', '.join(sorted({*BUILT_IN, *offered}))}; or give module:function.",
        )
    try:
        return cast("object", offered[target].load())
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(
            f"Entry point {target!r} of group {GROUP} cannot be loaded: {error}.",
            next_step="Install what it needs, or update the package that offers it.",
        ) from error


def _imported(target: str) -> object:
    module_name, _, path = target.partition(":")
    try:
        found: object = importlib.import_module(module_name)
        for name in path.split("."):
            found = getattr(found, name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(
            f"Reward function {target!r} cannot be imported: {error}.",
            next_step="Name it as module:function, from a module on the Python path.",
        ) from error
    return found
