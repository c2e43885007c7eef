"""The expected policy gradient of an advantage, by enumeration of all groups of episodes of a small decision tree."""

import itertools
import math
import random
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

from spanloop.training.recipes.choices import Credit

from .dataset.test_call_returns import calls
from .selection_rows import row, rules, select

Node = tuple[str, ...]
"""The actions before a call."""
Choice = tuple[Node, str]
Vector = npt.NDArray[np.float64]


class Episode(NamedTuple):
    """A path from the root to an end."""

    choices: tuple[Choice, ...]
    scores: tuple[float, ...]
    reward: float
    """Follows the last call."""


class Tree(NamedTuple):
    """A softmax policy over the actions at each node; ``stop`` ends an episode, as does the last call."""

    episodes: list[Episode]
    logits: dict[Choice, float]


def random_tree(depth: int, seed: int, *, has_rewards: bool) -> Tree:
    """Each call continues with one of two actions or stops."""
    rng = random.Random(seed)
    logits: dict[Choice, float] = {}
    episodes: list[Episode] = []
    open_paths: list[Episode] = [Episode((), (), 0.0)]
    while open_paths:
        path = open_paths.pop()
        node = tuple(action for _, action in path.choices)
        for action in ("left", "right", "stop"):
            logits[node, action] = rng.uniform(-1, 1)
            longer = Episode((*path.choices, (node, action)), (*path.scores, rng.uniform(-0.5, 1)), 0.0)
            if action == "stop" or len(node) + 1 == depth:
                episodes.append(longer._replace(reward=rng.uniform(-1, 1) if has_rewards else 0.0))
            else:
                open_paths.append(longer)
    return Tree(episodes, logits)


def probabilities(logits: Mapping[Choice, float]) -> dict[Choice, float]:
    totals: dict[Node, float] = {}
    for (node, _), logit in logits.items():
        totals[node] = totals.get(node, 0.0) + math.exp(logit)
    return {choice: math.exp(logit) / totals[choice[0]] for choice, logit in logits.items()}


def probability(episode: Episode, policy: Mapping[Choice, float]) -> float:
    return math.prod(policy[choice] for choice in episode.choices)


def derivative_of_log(tree: Tree, choice: Choice) -> Vector:
    """The gradient of the log-probability of a choice, by the logits."""
    policy = probabilities(tree.logits)
    return np.array([float(other == choice) - (policy[other] if other[0] == choice[0] else 0) for other in tree.logits])


def true_gradient(tree: Tree) -> Vector:
    """Central differences of the expected return."""

    def expected_return(changed: Choice, change: float) -> float:
        policy = probabilities(tree.logits | {changed: tree.logits[changed] + change})
        return math.fsum(probability(each, policy) * (sum(each.scores) + each.reward) for each in tree.episodes)

    return np.array([(expected_return(choice, 1e-5) - expected_return(choice, -1e-5)) / 2e-5 for choice in tree.logits])


def gradient_of_returns_to_go(tree: Tree, gamma: float) -> Vector:
    """The expected sum over calls of discounted return to go times gradient, without a baseline."""
    policy = probabilities(tree.logits)
    gradient = np.zeros(len(tree.logits))
    for episode in tree.episodes:
        later = [*episode.scores[:-1], episode.scores[-1] + episode.reward]
        for number, choice in enumerate(episode.choices):
            value = sum(gamma**place * score for place, score in enumerate(later[number:]))
            gradient += probability(episode, policy) * value * derivative_of_log(tree, choice)
    return gradient


def expected_gradient(tree: Tree, size: int, kind: str, *, is_scored: bool, **settings: Any) -> Vector:
    """The gradient of a group with the selection's advantages, weighted with the probability of the group."""
    groups = list(itertools.product(tree.episodes, repeat=size))
    rows = [
        group_row(f"{number:05}-{place}", f"{number:05}", episode, is_scored=is_scored)
        for number, group in enumerate(groups)
        for place, episode in enumerate(group)
    ]
    job = rules(kind, **settings)
    by_episode = dict(select(rows, job).rows.select("episode_id", "advantages").iter_rows())
    policy = probabilities(tree.logits)
    derivatives = {choice: derivative_of_log(tree, choice) for choice in tree.logits}
    gradient = np.zeros(len(tree.logits))
    for number, group in enumerate(groups):
        weight = math.prod(probability(episode, policy) for episode in group) / size
        for place, episode in enumerate(group):
            advantages: Sequence[float] = by_episode.get(f"{number:05}-{place}", [0.0] * len(episode.choices))
            for choice, advantage in zip(episode.choices, advantages, strict=True):
                gradient += weight * advantage * derivatives[choice]
    return gradient


def group_row(name: str, group: str, episode: Episode, *, is_scored: bool) -> dict[str, Any]:
    reward = episode.reward if is_scored else sum(episode.scores) / len(episode.scores)
    return row(name, group, reward, **calls(list(episode.scores)), is_scored=is_scored)


SHAPES = [(2, 2), (2, 3), (3, 2), (4, 2)]
"""Most calls of an episode, and episodes in a group."""


@pytest.mark.parametrize("is_scored", [True, False])
@pytest.mark.parametrize(("depth", "size"), SHAPES)
def test_the_expected_gradient_is_the_true_one(*, depth: int, size: int, is_scored: bool) -> None:
    """With the mean of the whole group it is the true one times ``1 - 1/size``: the episode is in its own baseline."""
    tree = random_tree(depth, seed=10 * depth + size, has_rewards=is_scored)
    expected = true_gradient(tree)
    assert np.abs(expected).max() > 0.01
    rloo = expected_gradient(tree, size, "rloo", is_scored=is_scored, credit=Credit.PROCESS)
    np.testing.assert_allclose(rloo, expected, rtol=0, atol=1e-6)
    dr_grpo = expected_gradient(tree, size, "dr_grpo", is_scored=is_scored, credit=Credit.PROCESS)
    np.testing.assert_allclose(dr_grpo, (1 - 1 / size) * expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("gamma", [0.8, 0.3, 0.0])
def test_a_discounted_gradient_is_that_of_the_returns_to_go(gamma: float) -> None:
    tree = random_tree(3, seed=1, has_rewards=True)
    rloo = expected_gradient(tree, 2, "rloo", is_scored=True, credit=Credit.PROCESS, gamma=gamma)
    np.testing.assert_allclose(rloo, gradient_of_returns_to_go(tree, gamma), rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", ["dr_grpo", "rloo"])
@pytest.mark.parametrize(("depth", "size"), SHAPES)
def test_no_multiple_of_the_older_formula_is_the_true_gradient(kind: str, depth: int, size: int) -> None:
    tree = random_tree(depth, seed=10 * depth + size, has_rewards=False)
    expected = true_gradient(tree)
    older = expected_gradient(tree, size, kind, is_scored=False, credit=Credit.PROCESS_GRPO)
    nearest = (older @ expected) / (older @ older) * older
    assert np.abs(nearest - expected).max() > 1e-3


@pytest.mark.parametrize("size", [2, 3, 8])
@pytest.mark.parametrize("second_score", [0.5, -0.5])
def test_the_older_formula_favours_the_worse_length(size: int, second_score: float) -> None:
    """The policy chooses whether to make a second call; a positive second score makes it the better choice."""
    sign = math.copysign(1, second_score)
    first, second = ((), "go"), (("go",), "stop")
    short, long = Episode((((), "stop"),), (sign,), 0.0), Episode((first, second), (sign, second_score), 0.0)
    tree = Tree([short, long], {first: 0.0, ((), "stop"): 0.0, second: 0.0})
    place = list(tree.logits).index(first)
    assert true_gradient(tree)[place] * sign > 0
    of_calls, older = (
        expected_gradient(tree, size, "dr_grpo", is_scored=False, credit=credit)[place] * sign
        for credit in (Credit.PROCESS, Credit.PROCESS_GRPO)
    )
    assert of_calls > 0 > older
