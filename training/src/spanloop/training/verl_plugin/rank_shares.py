"""Divide the groups of a batch among the data-parallel ranks.

Invariant: where there are as many groups as ranks, all rows of a group are on one rank, whose engine computes their
common prefixes once (:mod:`.engine.tree_engine`).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

LARGEST_SHARE = "perf/largest_rank_share"
"""Metric: packed tokens of the rank that has the most, divided by the mean over the ranks; 1 when all are equal."""


class RankShares(NamedTuple):
    """The rows of each rank."""

    rows: list[list[int]]
    """Indices into the batch."""
    largest: float
    """See :data:`LARGEST_SHARE`."""


def share_groups(tags: Sequence[dict[str, Any]], ranks: int) -> RankShares | None:
    """Return the rows of each rank, with packed tokens as equal as whole groups allow.

    The largest remaining group goes to the rank with the fewest tokens, so no rank has more than 4/3 of the least
    possible (Graham 1969).

    Args:
        tags: Of each row its ``group`` and that group's ``group_tokens``, packed.
        ranks: Their number.

    Returns:
        None where there are fewer groups than ranks.
    """
    groups: dict[str, list[int]] = {}
    tokens: dict[str, int] = {}
    for index, tag in enumerate(tags):
        groups.setdefault(tag["group"], []).append(index)
        tokens[tag["group"]] = tag["group_tokens"]
    if len(groups) < ranks:
        return None
    rows: list[list[int]] = [[] for _ in range(ranks)]
    sums = [0] * ranks
    for group in sorted(groups, key=lambda name: (-tokens[name], groups[name])):
        rank = min(range(ranks), key=lambda number: (sums[number], number))
        rows[rank] += groups[group]
        sums[rank] += tokens[group]
    return RankShares(rows, max(sums) * ranks / sum(sums))


def with_padding(rows: Sequence[Sequence[int]], padding: Sequence[int]) -> list[int]:
    """Return all rows rank by rank, each rank filled up to the rows of the one with the most.

    Args:
        rows: Indices of each rank's rows.
        padding: Indices of as many padding rows as that takes.
    """
    filling = iter(padding)
    most = max(map(len, rows))
    return [index for own in rows for index in (*own, *(next(filling) for _ in range(most - len(own))))]
