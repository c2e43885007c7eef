# pyright: basic
"""Plan the attention of one packed prefix tree for variable-length kernels, once for all layers.

A token attends causally to its own segment, and to every token of each segment above it. So attention over the tree is
one causal call for all segments, and one call for each depth of the tree: its queries are the tokens below the segments
of that depth, its keys are those segments. Partial results merge exactly by their log-sum-exp, as in ring attention.

Invariant: each pair of a token and a token of its past, itself included, is in exactly one pair of runs.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import torch

from .prefix_tree import PackedRows, Segment

Index = torch.Tensor | slice
"""Packed positions: int64 indices, or a slice where they are consecutive, which needs no copy."""


class Runs(NamedTuple):
    """Runs of consecutive tokens of one tensor, as variable-length kernels take them."""

    starts: tuple[int, ...]
    """Start of each run and, last, the end of the last one."""
    starts_on_device: torch.Tensor
    """The same, int32."""
    longest: int
    """Tokens of the longest run."""

    @classmethod
    def of(cls, lengths: Iterable[int], device: torch.device) -> "Runs":
        """Return runs of the given lengths, each above zero, in their order."""
        starts = (0, *accumulate(lengths))
        on_device = torch.tensor(starts, dtype=torch.int32).to(device)
        return cls(starts, on_device, max(end - start for start, end in pairwise(starts)))


class Level(NamedTuple):
    """Attention of the tokens below the segments of one depth to those segments.

    Run ``i`` of the queries attends to the whole run ``i`` of the keys.
    """

    query_index: Index
    """Packed positions of the queries; each at most once."""
    key_index: Index
    """Packed positions of the keys; a segment is repeated for each run of its queries."""
    queries: Runs
    keys: Runs


class KeptResults:
    """Results of the layers' attention, for forward passes that are recomputed within the backward pass.

    Activation checkpointing computes a layer again; its attention is taken from here instead. FSDP2 copies the
    containers among a layer's arguments; this class is none, so all copies of a plan share it.

    Args:
        recomputed_layers: The first layers, which are recomputed.
    """

    def __init__(self, recomputed_layers: int = 0) -> None:
        self._recomputed = recomputed_layers
        self._by_layer: dict[int, Any] = {}

    def pop(self, layer: int) -> Any:
        """Return and forget the result of a layer; None where there is none."""
        return self._by_layer.pop(layer, None)

    def keep(self, layer: int, result: Any) -> None:
        """Keep the result of a layer that is recomputed."""
        if layer < self._recomputed:
            self._by_layer[layer] = result


@dataclass(frozen=True)
class AttentionPlan:
    """The kernel calls of one pack.

    Attributes:
        segments: The segments, which cover all packed tokens.
        levels: One for each depth whose segments have tokens below them, from the root.
        kept: Results of the newest forward pass.
    """

    segments: Runs
    levels: tuple[Level, ...]
    kept: KeptResults = field(default_factory=KeptResults)


def plan_attention(
    layout: PackedRows, device: torch.device, *, longest_run: int | None = None, recomputed_layers: int = 0
) -> AttentionPlan:
    """Return the plan of ``layout``.

    Args:
        layout: Rows packed as a prefix tree.
        device: Where the kernels run.
        longest_run: Queries below one segment are cut into runs of at most so many tokens. The backward kernel computes
            blocks of keys in parallel, so a short segment with many tokens below it would leave most of a GPU idle.
            None does not cut.
        recomputed_layers: The model's first layers, which the backward pass computes again.
    """
    segments = Runs.of((part.end - part.begin for part in layout.segments), device)
    levels = tuple(_level(parts, device, longest_run) for parts in _inner_segments(layout.segments))
    return AttentionPlan(segments, levels, KeptResults(recomputed_layers))


def _inner_segments(segments: Sequence[Segment]) -> list[list[Segment]]:
    """Return the segments with tokens below them, by depth."""
    by_depth: defaultdict[int, list[Segment]] = defaultdict(list)
    path: list[Segment] = []
    for segment in segments:
        while path and path[-1].subtree_end <= segment.begin:
            path.pop()
        if segment.subtree_end > segment.end:
            by_depth[len(path)].append(segment)
        path.append(segment)
    return [by_depth[depth] for depth in sorted(by_depth)]


def _level(parts: Sequence[Segment], device: torch.device, longest_run: int | None) -> Level:
    pairs = [
        (slice(begin, end), slice(part.begin, part.end))
        for part in parts
        for begin, end in _cut(part.end, part.subtree_end, longest_run)
    ]
    queries, keys = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    return Level(
        query_index=_index(queries, device),
        key_index=_index(keys, device),
        queries=Runs.of((run.stop - run.start for run in queries), device),
        keys=Runs.of((run.stop - run.start for run in keys), device),
    )


def _cut(begin: int, end: int, longest: int | None) -> Iterable[tuple[int, int]]:
    step = longest or end - begin
    return ((start, min(start + step, end)) for start in range(begin, end, step))


def _index(runs: Sequence[slice], device: torch.device) -> Index:
    if all(run.stop == after.start for run, after in pairwise(runs)):
        return slice(runs[0].start, runs[-1].stop)
    return torch.cat([torch.arange(run.start, run.stop) for run in runs]).to(device)
