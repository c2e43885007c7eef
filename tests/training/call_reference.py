"""Advantages of model calls by credit ``process``: a matrix of episodes and call numbers, in NumPy."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

Row = dict[str, Any]
Calls = dict[str, dict[int, float]]
"""Episode id → step → a number of the call."""


def calls_of(rows: Iterable[Row]) -> dict[str, list[tuple[int, float | None]]]:
    """The calls of each episode in order: step and score. A row without positions is one call."""
    calls: dict[str, list[tuple[int, float | None]]] = defaultdict(list)
    for each in rows:
        unknown = [(each["first_step"], None)]
        calls[each["episode_id"]] += list(zip(each["sampled_steps"], each["step_rewards"], strict=True)) or unknown
    return {episode: sorted(steps) for episode, steps in calls.items()}


def call_advantages(rows: Iterable[Row], episodes: Sequence[Row], kind: str, gamma: float) -> Calls:
    """Compare ``episodes`` (a row of each), whose calls are those of all their ``rows``."""
    by_episode = {each["episode_id"]: each for each in episodes}
    calls = calls_of(each for each in rows if each["episode_id"] in by_episode)
    scores = [score for steps in calls.values() for _, score in steps]
    takes_rewards = all(each["is_scored"] for each in episodes) or all(score is None for score in scores)
    returns = np.zeros((len(calls), max(map(len, calls.values()))))
    has_call = np.zeros(returns.shape, dtype=bool)
    for place, (episode, steps) in enumerate(calls.items()):
        for number in range(len(steps)):
            later = [score or 0.0 for _, score in steps[number:]]
            later[-1] += by_episode[episode]["reward"] if takes_rewards else 0.0
            returns[place, number] = np.dot(later, gamma ** np.arange(len(later)))
            has_call[place, number] = True
    advantages = scaled(kind, returns - returns.mean(axis=0), has_call)
    return {
        episode: {step: float(advantages[place, number]) for number, (step, _) in enumerate(steps)}
        for place, (episode, steps) in enumerate(calls.items())
    }


def scaled(kind: str, differences: Any, has_call: Any) -> Any:
    count = len(differences)
    if kind == "rloo":
        return differences * count / max(count - 1, 1)
    if kind == "dr_grpo" or np.abs(differences[has_call]).max() <= 1e-6:
        return differences
    variance = (differences[has_call] ** 2).sum() / (has_call.sum() - 1)
    is_plus_plus = kind == "reinforce_plus_plus"
    return differences / (np.sqrt(variance + 1e-8) if is_plus_plus else np.sqrt(variance) + 1e-6)
