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

_MIN_SAVED_TOKENS = 16
"""A common prefix that saves fewer tokens is computed for each of its branches."""
_MIN_SAVED_SHARE = 1 / 64
"""The same, relative to the tokens below it: each of these costs attention to the shared segment, and a merge
of the result, in every layer."""


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


def shared_prefixes(rows: Sequence[torch.Tensor]) -> list[int]:
    """Return how many first tokens each row shares with the row before it, where sharing them is worth it.

    Args:
        rows: In the order of :func:`prefix_order`.
    """
    shared = [0, *(common_prefix_tokens(*neighbours) for neighbours in pairwise(rows))]
    path: list[_Branch] = []
    for row, following in zip(rows, [*range(1, len(rows)), None], strict=True):
        until = 0 if following is None else shared[following]
        # the subtree that ends here: where its first segment ends, and the tokens below that
        end, below = len(row), 0
        while path and path[-1].depth > until:
            branch = path.pop()
            below += branch.below + end - branch.depth
            end = branch.depth
            above = max(until, path[-1].depth if path else 0)
            if not _is_worth(saved=len(branch.joined) * (end - above), below=below):
                below += (len(branch.joined) + 1) * (end - above)
                end = above
                for number in branch.joined:
                    shared[number] = above
                _branch_at(path, above).joined.extend(branch.joined)
        if following is not None:
            branch = _branch_at(path, until)
            branch.below += below + end - until
            branch.joined.append(following)
    return shared


class _Branch:
    """A common prefix of ``depth`` tokens, with the tokens of its finished branches."""

    def __init__(self, depth: int) -> None:
        self.depth, self.below = depth, 0
        self.joined: list[int] = []
        """The rows that begin a further branch."""


def _branch_at(path: list[_Branch], depth: int) -> _Branch:
    if not path or path[-1].depth < depth:
        path.append(_Branch(depth))
    return path[-1]


def _is_worth(saved: int, below: int) -> bool:
    return saved >= max(_MIN_SAVED_TOKENS, _MIN_SAVED_SHARE * below)


def packed_tokens(rows: Sequence[torch.Tensor]) -> int:
    """Return the number of tokens of ``rows`` when they are packed."""
    return tokens_in_order([rows[index] for index in prefix_order(rows)])


def tokens_in_order(rows: Sequence[torch.Tensor]) -> int:
    """Return :func:`packed_tokens` of rows that are in the order of :func:`prefix_order`."""
    return sum(map(len, rows)) - sum(shared_prefixes(rows))


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
    order = prefix_order(rows)
    prefixes = shared_prefixes([rows[index] for index in order]) if share else [0] * len(rows)
    for index, shared in zip(order, prefixes, strict=True):
        path = _branch(nodes, path, shared)
        added = len(rows[index]) - shared
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


def _branch(nodes: list[_Node], path: list[_Node], shared: int) -> list[_Node]:
    """Return the part of ``path`` that covers ``shared`` tokens; a segment that is left inside is cut in two."""
    shared_path = [node for node in path if node.depth < shared]
    if shared_path:
        last = shared_path[-1]
        inside = shared - last.depth
        if inside < last.end - last.begin:
            rest = _Node(shared, last.begin + inside, last.end)
            rest.subtree_end = last.subtree_end
            last.end = rest.begin
            nodes.append(rest)
    return shared_path
