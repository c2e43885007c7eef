"""Reward functions by name: built in, out of an installed package, or from a module of the user's.

A package offers one with an entry point in the group ``spanloop.rewards``; ``module:name`` names any class, object or
callable of an importable module, such as ``my_rewards:exact_answers``.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.plugins import ExtensionPoint, split_reference

from .attempt import NamedReward, Reward, reward_of_callable

_HERE: Final = "spanloop.converters.rewards"
BUILT_IN: Final[Mapping[str, str]] = {
    "agent": f"{_HERE}.agent:AgentReward",
    "latency": f"{_HERE}.measures:Latency",
    "cost": f"{_HERE}.measures:Cost",
    "exact": f"{_HERE}.match:Exact",
    "numeric": f"{_HERE}.match:Numeric",
    "json-schema": f"{_HERE}.match:JsonSchema",
}

REWARD_POINT: Final = ExtensionPoint[Reward](
    what="reward function", group="spanloop.rewards", base=Reward, built_in=BUILT_IN, adapt=reward_of_callable
)


def reward_functions(references: Iterable[str]) -> tuple[NamedReward, ...]:
    """Return the functions that ``references`` name, in their order.

    Args:
        references: Each a name or ``module:name``, with options as ``:key=value``, and after ``stored-name=`` where its
            reward is stored by another name.

    Raises:
        ConfigurationError: When one cannot be found or called, has an option that cannot be used, or two would be
            stored under one name.
    """
    named: dict[str, NamedReward] = {}
    for reference in references:
        reward = _named(reference.strip())
        if reward.name in named:
            raise ConfigurationError(
                f"Two reward functions would be stored as {reward.name!r}.",
                next_step=f"Name one of them: other={reference}.",
            )
        named[reward.name] = reward
    return tuple(named.values())


def _named(reference: str) -> NamedReward:
    stored, separator, rest = reference.partition("=")
    if not separator or ":" in stored:  # the first "=" belongs to an option
        stored, rest = "", reference
    target, _ = split_reference(rest)
    return NamedReward(stored or target.rpartition(":")[2], REWARD_POINT.find(rest))
