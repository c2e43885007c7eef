# pyright: basic
"""Pack rows of tokens as a tree of common prefixes, each prefix once.

The rows of a job share most of their prompts. In sorted order, rows with a common prefix are neighbours, and the tokens
that each row adds to the previous one form the prefix tree in depth-first order. A packed token stands for the same
token with the same past in every row that contains it, so a causal model computes the same for all of them.

Invariant: a token's descendants lie in one contiguous range after its segment. Attention over the tree
(:mod:`.tree_attention`) relies on nothing else.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import torch

_MIN_SHARED_TOKENS = 16
"""A shorter common prefix is computed again: a segment costs two kernel calls in every layer."""


class Segment(NamedTuple):
    """A run of packed tokens. A row that contains its first token contains all of them."""

    begin: int
    end: int
    """One past its last token."""
    subtree_end: int
    """One past the last token of the rows that continue here; tokens in ``[end, subtree_end)`` attend to it."""


@dataclass(frozen=True)
class PackedRows:
    """Rows as one packed sequence of ``tokens`` tokens.

    Attributes:
        segments: The segments in packed order; they cover ``[0, tokens)``.
        where: For each row, the packed index of each of its tokens, int64.
        tokens: Length of the packed sequence.
    """

    segments: tuple[Segment, ...]
    where: tuple[torch.Tensor, ...]
    tokens: int

    def input_ids(self, rows: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return the packed token ids, shape ``(tokens,)``."""
        packed = torch.empty(self.tokens, dtype=torch.int64)
        for row, where in zip(rows, self.where, strict=True):
            packed[where] = row
        return packed

    def position_ids(self) -> torch.Tensor:
        """Return each packed token's position in its rows, shape ``(tokens,)``."""
        positions = torch.empty(self.tokens, dtype=torch.int64)
        for where in self.where:
            positions[where] = torch.arange(len(where))
        return positions


class _Node:
    """A segment that may still be split."""

    def __init__(self, depth: int, begin: int, end: int) -> None:
        self.depth, self.begin, self.end, self.subtree_end = depth, begin, end, end


def prefix_order(rows: Sequence[torch.Tensor]) -> list[int]:
    """Return indices of ``rows`` so that rows with a common prefix are neighbours."""
    keys = [row.tolist() for row in rows]
    return sorted(range(len(rows)), key=keys.__getitem__)


def common_prefix_tokens(first: torch.Tensor, second: torch.Tensor) -> int:
    """Return the length of the common prefix of two rows."""
    length = min(len(first), len(second))
    different = (first[:length] != second[:length]).nonzero()
    return int(different[0]) if len(different) else length


def packed_tokens(rows: Sequence[torch.Tensor]) -> int:
    """Return the number of tokens of ``rows`` when each common prefix is there once."""
    order = [rows[index] for index in prefix_order(rows)]
    return sum(map(len, rows)) - sum(common_prefix_tokens(*neighbours) for neighbours in pairwise(order))


def pack(rows: Sequence[torch.Tensor], *, share: bool = True) -> PackedRows:
    """Pack int64 rows of one dimension.

    Args:
        rows: At least one row; none empty.
        share: False packs every row separately.
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
    """Return the part of ``path`` that covers ``shared`` tokens, and its number of tokens.

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
