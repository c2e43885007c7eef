"""A person's numbers, verdicts and categories in the rewards of an episode.

Invariant: a number that a person gave replaces every other reward of its episode or step. The verdict on the episode
and all categories mark the episode.
"""

import math

from spanloop.foundation.tables.judged_values import Verdict

from ..judgements import Judgements
from .base import REWARD_NAME, Rewards
from .scores import main_reward


def with_judgements(rewards: Rewards, judgements: Judgements) -> Rewards:
    """Return rewards that count what people say."""
    of_episode = judgements.episode
    breakdown, steps, value, label = rewards.breakdown, dict(rewards.steps), rewards.value, rewards.label
    numbers = {index: each.number for index, each in judgements.steps.items() if each.number is not None}
    for index, number in numbers.items():
        steps[index] = steps.get(index, {}) | {REWARD_NAME: number}
    if of_episode is not None and of_episode.number is not None:
        breakdown, value, label = breakdown | {REWARD_NAME: of_episode.number}, of_episode.number, ""
    elif numbers and not breakdown:
        per_step = [reward for each in steps.values() if (reward := main_reward(each)) is not None]
        value = math.fsum(per_step) / len(per_step)
    verdict = of_episode.verdict if of_episode is not None else ""
    opposite = {Verdict.GOOD.value: Verdict.BAD.value, Verdict.BAD.value: Verdict.GOOD.value}.get(verdict, "")
    marks = ({*rewards.marks} - {opposite}) | {verdict} | {each.category for each in judgements.all}
    return rewards._replace(
        value=value,
        breakdown=breakdown,
        label=label,
        steps=steps,
        marks=tuple(sorted(marks - {""})),
        ingested_us=max(rewards.ingested_us, judgements.ingested_us),
    )
