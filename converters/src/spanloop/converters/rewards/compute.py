"""Reward functions over episodes, beside what was scored from outside.

Invariant: a reward function touches no episode but the one it is asked about, and one that raises or gives what is
no number costs exactly that reward: it is rejected by name, with the episode, and everything else stands. A score from
outside wins over a function of the same name.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from ..judgements import NO_JUDGEMENTS, Judgements
from ..spans import Rejected
from ..steps import Episode
from .attempt import Attempt, Judgement, NamedReward, judgement
from .base import NO_REWARDS, REWARD_NAME, Rewards
from .scores import Joined, main_reward


def add_computed(
    joined: Joined,
    episodes: Iterable[Episode],
    functions: Sequence[NamedReward],
    judgements: Mapping[str, Judgements] = MappingProxyType({}),
) -> Joined:
    """``joined`` with what ``functions`` say of each episode.

    A function's value counts like a score of its name. Its components are in the breakdown as ``name/component`` and
    count for nothing else. Functions see the failures as people judged them (``judgements``, by episode id).
    """
    if not functions:
        return joined
    rewards = dict(joined.rewards)
    rejected = list(joined.rejected)
    for episode in episodes:
        scored = rewards.get(episode.episode_id, NO_REWARDS)
        computed: dict[str, Judgement] = {}
        for named in functions:
            result = _ask(named, Attempt(episode, scored, judgements.get(episode.episode_id, NO_JUDGEMENTS)))
            if isinstance(result, Rejected):
                rejected.append(result)
            elif result is not None:
                computed[named.name] = result
        if computed:
            rewards[episode.episode_id] = _joined(scored, computed)
    return Joined(rewards, rejected)


def _ask(named: NamedReward, attempt: Attempt) -> Judgement | Rejected | None:
    last = attempt.episode.steps[-1].span
    where = f"reward function {named.name!r}, episode {attempt.episode.episode_id}"
    try:
        result = named.function(attempt)
    except Exception as error:  # noqa: BLE001 - the border to a user's code: one bad reward costs exactly one
        return Rejected(last.trace_id, last.span_id, "reward_failed", f"{where}: {type(error).__name__}: {error}")
    if result is None:
        return None
    try:
        return judgement(result)
    except (TypeError, ValueError, OverflowError) as error:
        return Rejected(last.trace_id, last.span_id, "reward_invalid", f"{where}: {error}")


def _joined(scored: Rewards, judgements: dict[str, Judgement]) -> Rewards:
    values = {**{name: judged.value for name, judged in judgements.items()}, **scored.breakdown}
    components = {
        f"{name}/{component}": value
        for name, judged in judgements.items()
        if name not in scored.breakdown
        for component, value in judged.components.items()
    }
    label = scored.label if REWARD_NAME in scored.breakdown or values == scored.breakdown else ""
    if not label and (only := _main(values, judgements)) is not None:
        label = only.label
    return scored._replace(value=main_reward(values), breakdown={**values, **components}, label=label)


def _main(values: dict[str, float], judgements: dict[str, Judgement]) -> Judgement | None:
    """The judgement that is the reward by itself."""
    name = REWARD_NAME if REWARD_NAME in values else next(iter(values)) if len(values) == 1 else ""
    return judgements.get(name)
