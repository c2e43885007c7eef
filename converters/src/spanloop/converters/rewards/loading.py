"""Reward functions by name: built in, out of an installed package, or from a module of the user's.

A package offers one with an entry point in the group ``spanloop.rewards``; ``module:function`` names any importable
callable, such as ``my_rewards:exact_answers``, made there with the settings that it needs.
"""

from collections.abc import Iterable
from typing import Final, cast

from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.plugins import find_extension

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
    function = find_extension(target, group=GROUP, what="reward function", built_in=BUILT_IN)
    if not callable(function):
        raise ConfigurationError(
            f"Reward {target!r} is {type(function).__name__}, expected a callable from an attempt to a reward.",
            next_step="See docs/how-to/define-rewards.md for the form of a reward function.",
        )
    name = given if separator else target.rpartition(":")[2]
    return NamedReward(name, cast("RewardFunction", function))
