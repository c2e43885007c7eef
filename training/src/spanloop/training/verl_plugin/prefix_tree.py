# pyright: basic
"""Rows of tokens packed so that what they begin with in common is there once.

The rows of a job share most of their prompts: the system prompt and the tools with every other row, the question with
the other rows of a group. Sorted, rows that share a beginning are neighbours, and the tokens that each adds to the one
before it, joined, are the tree of all beginnings in depth-first order. A token of that packed sequence stands for the
same token with the same past in every row that contains it, so whatever a causal model computes for it is the same
for all of them.

The invariant: a token's descendants lie in one unbroken range right behind its segment. Attention over the tree
(:mod:`.tree_attention`) needs nothing else.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

_MIN_SHARED_TOKENS = 16
"""Fewer tokens in common are computed again: a segment costs two kernel calls in every layer."""


class Segment(NamedTuple):
    """A run of packed tokens that every row through its first token contains whole."""

    begin: int
    end: int
    """One past its last token."""
    subtree_end: int
    """One past the last token of the rows that go on from here: ``[end, subtree_end)`` look back at this segment."""


@dataclass(frozen=True)
class PackedRows:
    """Rows as one packed sequence of ``tokens`` tokens.

    Attributes:
        segments: In packed order; together they cover ``[0, tokens)``.
        where: For each row the packed index of each of its tokens, int64.
        tokens: Length of the packed sequence.
    """

    segments: tuple[Segment, ...]
    where: tuple[torch.Tensor, ...]
    tokens: int

    def input_ids(self, rows: Sequence[torch.Tensor]) -> torch.Tensor:
        """The packed token ids, shape ``(tokens,)``."""
        packed = torch.empty(self.tokens, dtype=torch.int64)
        for row, where in zip(rows, self.where, strict=True):
            packed[where] = row
        return packed

    def position_ids(self) -> torch.Tensor:
        """Each packed token's position in its rows, shape ``(tokens,)``."""
        positions = torch.empty(self.tokens, dtype=torch.int64)
        for where in self.where:
            positions[where] = torch.arange(len(where))
        return positions


class _Node:
    """A segment that may still be cut in two."""

    def __init__(self, depth: int, begin: int, end: int) -> None:
        self.depth, self.begin, self.end, self.subtree_end = depth, begin, end, end


def prefix_order(rows: Sequence[torch.Tensor]) -> list[int]:
    """Indices of ``rows`` such that rows with a common beginning are neighbours."""
    keys = [row.tolist() for row in rows]
    return sorted(range(len(rows)), key=keys.__getitem__)


def common_prefix_tokens(first: torch.Tensor, second: torch.Tensor) -> int:
    """How many tokens two rows begin with in common."""
    length = min(len(first), len(second))
    different = (first[:length] != second[:length]).nonzero()
    return int(different[0]) if len(different) else length


def pack(rows: Sequence[torch.Tensor], *, share: bool = True) -> PackedRows:
    """Pack int64 rows of one dimension.

    Args:
        rows: At least one; none empty.
        share: False leaves every row by itself.
    """
    nodes: list[_Node] = []
    where: list[torch.Tensor] = [torch.empty(0)] * len(rows)
    path: list[_Node] = []
    previous = -1
    tokens = 0
    for index in prefix_order(rows):
        row = rows[index]
        shared = common_prefix_tokens(rows[previous], row) if share and previous >= 0 else 0
        path, shared = _branch(nodes, path, shared)
        added = len(row) - shared
        before = where[previous][:shared] if shared else torch.empty(0, dtype=torch.int64)
        where[index] = torch.cat([before, torch.arange(tokens, tokens + added)])
        if added:
            path = [*path, _Node(shared, tokens, tokens + added)]
            nodes.append(path[-1])
            tokens += added
        for node in path:
            node.subtree_end = tokens
        previous = index
    nodes.sort(key=lambda node: node.begin)
    return PackedRows(tuple(Segment(node.begin, node.end, node.subtree_end) for node in nodes), tuple(where), tokens)


def _branch(nodes: list[_Node], path: list[_Node], shared: int) -> tuple[list[_Node], int]:
    """Leave ``path`` after ``shared`` tokens: the part that is shared_path, and how many tokens that is.

    A segment that is left inside is cut in two, unless too little of it would be shared.
    """
    shared_path: list[_Node] = []
    for node in path:
        inside = min(shared - node.depth, node.end - node.begin)
        if inside < _MIN_SHARED_TOKENS:
            return shared_path, node.depth
        if inside < node.end - node.begin:
            rest = _Node(shared, node.begin + inside, node.end)
            rest.subtree_end = node.subtree_end
            node.end = rest.begin
            nodes.append(rest)
        shared_path.append(node)
        if node.depth + inside == shared:
            break
    return shared_path, shared
