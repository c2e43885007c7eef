# pyright: basic
"""The inputs of one forward pass over packed rows, and the positions whose log-probabilities the loss needs.

Rows are packed on the CPU; :meth:`PackedBatch.to` moves the result to the device that computes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise

import torch

from .prefix_tree import PackedRows, common_prefix_tokens, pack, prefix_order, tokens_in_order


@dataclass(frozen=True)
class PackedBatch:
    """Packed rows for the model, and the logits that the loss needs.

    Attributes:
        layout: Positions of the rows' tokens in the packed sequence.
        input_ids: Shape ``(1, tokens)``.
        position_ids: Shape ``(1, tokens)``.
        logits_at: Packed positions whose logits are needed, ascending, at least one.
        rows: For each predicted token, the index into ``logits_at`` of the token before it; ascending.
        labels: The predicted tokens, parallel to ``rows``.
        slots: The position of each among the concatenated tokens of the rows: at the token before it, as verl's
            losses expect.
        offsets: Start of each row among the concatenated tokens, shape ``(number of rows + 1,)``.
    """

    layout: PackedRows
    input_ids: torch.Tensor
    position_ids: torch.Tensor
    logits_at: torch.Tensor
    rows: torch.Tensor
    labels: torch.Tensor
    slots: torch.Tensor
    offsets: torch.Tensor

    def to(self, device: torch.device) -> "PackedBatch":
        """Return the batch with its tensors on ``device``."""
        tensors = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "layout"}
        return replace(self, **{name: tensor.to(device, non_blocking=True) for name, tensor in tensors.items()})

    def scatter(self, values: torch.Tensor) -> torch.Tensor:
        """Spread ``values`` of the predicted tokens over all tokens of the rows; other tokens get zero."""
        empty = torch.zeros(sum(map(len, self.layout.where)), dtype=values.dtype, device=values.device)
        return empty.index_put((self.slots,), values)

    def spread(self, values: torch.Tensor) -> torch.Tensor:
        """Return ``values`` of all packed tokens for all tokens of the rows."""
        return values.index_select(0, torch.cat(self.layout.where).to(values.device))


def pack_batch(rows: Sequence[torch.Tensor], masks: Sequence[torch.Tensor], *, share: bool = True) -> PackedBatch:
    """Pack ``rows`` of token ids, for log-probabilities of the tokens that ``masks`` mark.

    Args:
        rows: int64, one dimension each, none empty.
        masks: For each row a mask of its last tokens, as many as the mask is long; the prompt's may be left out.
            A row's first token is never predicted.
        share: Whether common prefixes are computed once.
    """
    layout = pack(rows, share=share)
    before = [_predicted_indices(row, mask) - 1 for row, mask in zip(rows, masks, strict=True)]
    lengths = torch.tensor([0, *(len(row) for row in rows)])
    offsets = lengths.cumsum(0)
    packed = torch.cat([where[index] for where, index in zip(layout.where, before, strict=True)])
    # one position when no token is predicted, so that the loss still depends on the weights
    logits_at, inverse = packed.unique(return_inverse=True) if len(packed) else (torch.zeros(1).long(), packed)
    ascending, order = inverse.sort()
    labels = torch.cat([row[index + 1] for row, index in zip(rows, before, strict=True)])
    slots = torch.cat([index + offset for index, offset in zip(before, offsets[:-1], strict=True)])
    return PackedBatch(
        layout=layout,
        input_ids=layout.input_ids(rows)[None],
        position_ids=layout.position_ids()[None],
        logits_at=logits_at,
        rows=ascending,
        labels=labels[order],
        slots=slots[order],
        offsets=offsets,
    )


def _predicted_indices(row: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    indices = mask.nonzero().squeeze(1) + (len(row) - len(mask))
    return indices[indices > 0]


def split_into(parts: list[list[int]], count: int) -> list[list[int]]:
    """Cut the largest of ``parts`` in two until there are ``count``; needs at least as many indices."""
    parts = list(parts)
    while len(parts) < count:
        number = max(range(len(parts)), key=lambda index: len(parts[index]))
        half = len(parts[number]) // 2
        parts[number : number + 1] = [parts[number][:half], parts[number][half:]]
    return parts


def micro_batches(rows: Sequence[torch.Tensor], limit_tokens: int, *, share: bool = True) -> list[list[int]]:
    """Split rows into parts of at most ``limit_tokens`` packed tokens; rows with a common prefix stay together.

    A row longer than the limit is a part of its own.
    """
    order = prefix_order(rows)
    ordered = [rows[index] for index in order]
    common = [0, *(common_prefix_tokens(*neighbours) for neighbours in pairwise(ordered))] if share else [0] * len(rows)
    parts: list[list[int]] = []
    start = 0
    while start < len(order):
        end, tokens = start + 1, len(ordered[start])
        while end < len(order) and (tokens := tokens + len(ordered[end]) - common[end]) <= limit_tokens:
            end += 1
        # packing computes some common prefixes repeatedly
        while share and end > start + 1 and tokens_in_order(ordered[start:end]) > limit_tokens:
            end -= 1
        parts.append(order[start:end])
        start = end
    return parts
