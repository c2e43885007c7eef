"""Preference pairs: a better and a worse attempt at one task, with the tokens of each that a loss may touch.

A pair compares whole episodes: the loss takes the sum of the log-probabilities of all sampled tokens of an episode,
over all of its rows, as trajectory preferences do (Song et al. 2024, "Trial and Error: Exploration-Based Trajectory
Optimization for LLM Agents"; Rafailov et al. 2024, "From r to Q*", which derives it for multi-step tasks whose tools
are deterministic). Tokens up to the first divergence add the same number to both sides and cancel, so no place of
divergence has to be found. Tool results and prompts are not sampled and not in the sum.

Invariant: the better side leaves out the policy's own mistakes, and the worse side what a tool, the environment, the
harness or nobody known broke. The pairs of a group depend on its episodes, the margin and the seed, not on their order.
"""

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple

import polars as pl

from spanloop.converters.credit import is_not_the_policys, is_policys_mistake
from spanloop.training.recipes.pairs import Preference

from .credit import mask_steps
from .groups import REWARD_TOLERANCE
from .rejections import Rejection
from .seeded_order import seeded_hash


class Side(StrEnum):
    """The sides of a pair."""

    CHOSEN = "chosen"
    """The attempt with the higher reward."""
    REJECTED = "rejected"


PAIR_COLUMNS: Final = {"pair_id": pl.UInt32(), "side": pl.String()}
"""Columns of the dataset file; null for the other kinds. A row occurs once for each pair of its episode."""
NO_PAIR: Final = tuple(pl.lit(None, dtype).alias(name) for name, dtype in PAIR_COLUMNS.items())


class Pairing(NamedTuple):
    """How the pairs of a group are chosen."""

    margin: float
    """The rewards of a pair differ by more than this."""
    pairs_per_group: int
    seed: int
    repeats_per_task: int = 2
    """A group with fewer attempts has no pairs."""

    @classmethod
    def of(cls, recipe: Preference, seed: int) -> "Pairing":
        """Return how a recipe pairs."""
        return cls(recipe.pair_margin, recipe.pairs_per_group, seed, recipe.repeats_per_task)


class Attempt(NamedTuple):
    """One episode of a group."""

    episode_id: str
    reward: float
    can_be_chosen: bool
    """It has a row whose mask leaves tokens on the better side."""
    can_be_rejected: bool


class Pair(NamedTuple):
    """Two episodes of a group."""

    chosen: Attempt
    rejected: Attempt

    @property
    def difference(self) -> float:
        """The difference of the rewards."""
        return self.chosen.reward - self.rejected.reward


def choose_pairs(attempts: Sequence[Attempt], pairing: Pairing) -> list[Pair]:
    """Return the pairs of one group: each attempt as seldom as possible, large differences of reward first.

    Only as many of the best and of the worst attempts as pairs are wanted can be needed: every pair with another
    attempt could be exchanged for one of theirs. Attempts of equal reward are ordered by a hash with the seed.
    """
    if len(attempts) < pairing.repeats_per_task:
        return []
    by_hash = sorted(attempts, key=lambda attempt: seeded_hash(attempt.episode_id, pairing.seed))
    best = [each for each in sorted(by_hash, key=lambda each: -each.reward) if each.can_be_chosen]
    worst = [each for each in sorted(by_hash, key=lambda each: each.reward) if each.can_be_rejected]
    at_most = pairing.pairs_per_group
    limit = max(pairing.margin, REWARD_TOLERANCE)
    candidates = [Pair(good, bad) for good in best[:at_most] for bad in worst[:at_most]]
    candidates = [pair for pair in candidates if pair.difference > limit]
    uses: Counter[str] = Counter()
    pairs: list[Pair] = []
    while candidates and len(pairs) < at_most:
        pair = min(candidates, key=lambda each: (uses[each.chosen[0]] + uses[each.rejected[0]], -each.difference))
        candidates.remove(pair)
        pairs.append(pair)
        uses.update((pair.chosen.episode_id, pair.rejected.episode_id))
    return pairs


class PairedRows(NamedTuple):
    """The result of :func:`pair_rows`."""

    checked: pl.DataFrame
    """The input with ``reason``: empty where the row is on a side of at least one pair."""
    rows: pl.DataFrame
    """The rows of every pair with :data:`PAIR_COLUMNS` and the mask of their side; ``masked_steps`` and
    ``masked_tokens`` as of ``mask_steps``."""


def pair_rows(checked: pl.DataFrame, pairing: Pairing) -> PairedRows:
    """Make the pairs of all groups.

    Args:
        checked: Rows of the query ``training_trajectories`` with ``reason``, empty where the row can be trained on;
            such rows have a reward and a group.
        pairing: How.
    """
    sides = {
        Side.CHOSEN: mask_steps(checked, is_policys_mistake),
        Side.REJECTED: mask_steps(checked, is_not_the_policys),
    }
    groups = _attempts(sides)
    pairs = [pair for attempts in groups.values() for pair in choose_pairs(attempts, pairing)]
    members = pl.DataFrame(
        [
            (number, side.value, attempt.episode_id)
            for number, pair in enumerate(pairs)
            for side, attempt in zip(Side, pair, strict=True)
        ],
        schema=PAIR_COLUMNS | {"episode_id": pl.String()},
        orient="row",
    )
    rows = pl.concat(
        masked.filter(pl.col("reason") == "").drop(*PAIR_COLUMNS).join(on_side, on="episode_id")
        for side, masked in sides.items()
        for on_side in [members.filter(pl.col("side") == side)]
    )
    return PairedRows(_with_reasons(sides, members, groups, pairing), rows)


def _attempts(sides: dict[Side, pl.DataFrame]) -> dict[str, list[Attempt]]:
    """Return the episodes of each group that have a usable row on either side."""
    usable = [
        masked.filter(pl.col("reason") == "").select("group_id", "episode_id", "reward", side=pl.lit(side.value))
        for side, masked in sides.items()
    ]
    episodes = (
        pl.concat(usable)
        .group_by("group_id", "episode_id")
        .agg(pl.col("reward").first(), *((pl.col("side") == side).any().alias(side) for side in Side))
        .sort("group_id", "episode_id")
    )
    groups: dict[str, list[Attempt]] = {}
    for group, *attempt in episodes.iter_rows():
        groups.setdefault(group, []).append(Attempt(*attempt))
    return groups


def _with_reasons(
    sides: dict[Side, pl.DataFrame], members: pl.DataFrame, groups: dict[str, list[Attempt]], pairing: Pairing
) -> pl.DataFrame:
    """Return the rows with the reason why they are in no pair.

    A row that cannot be on a side of its episode has the reason of that side. When its episode has none, the rejection
    of the group comes first, unless the row itself is why the episode has no side.
    """
    chosen, rejected = (sides[side] for side in Side)
    rejections = pl.DataFrame(
        [(group, _rejection(attempts, pairing)) for group, attempts in groups.items()],
        schema={"group_id": pl.String, "rejection": pl.String},
        orient="row",
    )
    if_chosen, if_rejected, rejection = pl.col("reason"), pl.col("rejected_reason"), pl.col("rejection")
    is_chosen, is_rejected = (pl.col("episode_id").is_in(_episodes(members, side).implode()) for side in Side)
    is_used = (is_chosen & (if_chosen == "")) | (is_rejected & (if_rejected == ""))
    of_either_side = pl.when(if_chosen != "").then(if_chosen).otherwise(if_rejected)
    reason = (
        pl.when(is_used)
        .then(pl.lit(""))
        .when(is_chosen | is_rejected)
        .then(pl.when(is_chosen).then(if_chosen).otherwise(if_rejected))
        .when(
            ((if_chosen != "") & (if_rejected != "")) | ((of_either_side != "") & (rejection == Rejection.NOT_PAIRED))
        )
        .then(of_either_side)
        .otherwise(rejection)
    )
    frame = chosen.with_columns(rejected["reason"].alias("rejected_reason"))
    frame = frame.join(rejections, on="group_id", how="left", maintain_order="left")
    return frame.with_columns(reason=reason).drop("rejected_reason", "rejection")


def _episodes(members: pl.DataFrame, side: Side) -> pl.Series:
    return members.filter(pl.col("side") == side)["episode_id"].unique()


def _rejection(attempts: Sequence[Attempt], pairing: Pairing) -> str:
    """Return why an episode of the group that is usable is in no pair."""
    rewards = [attempt.reward for attempt in attempts]
    spread = max(rewards) - min(rewards)
    if len(attempts) < pairing.repeats_per_task:
        return Rejection.GROUP_TOO_SMALL.value
    if spread <= REWARD_TOLERANCE:
        return Rejection.REWARD_CONSTANT.value
    return Rejection.WITHIN_PAIR_MARGIN.value if spread <= pairing.margin else Rejection.NOT_PAIRED.value
