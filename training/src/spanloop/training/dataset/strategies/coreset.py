"""Coreset: a part of the units that stands for all of them.

Invariant: exactly the requested number is chosen, or all units when there are fewer; the choice does not depend on the
order of the units.
"""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...spec.choices import Coreset
from ..seeded_order import seeded_order

DIMENSIONS: Final = 128
"""Of the hashed bigrams of a unit."""
HYBRID_CANDIDATES: Final = 2
"""``hybrid`` looks for diversity among so many times the requested number of units."""
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)
_MIX_NEXT: Final = np.uint64(0xC2B2AE3D27D4EB4F)


def requested(available: int, share: float | None, size: int | None) -> int:
    """Return how many of ``available`` units a share (rounded up) and a number ask for; the smaller one counts."""
    # a product such as 0.07 * 100 = 7.000000000000001 is not rounded up
    wanted = available if share is None else math.ceil(share * available - 1e-9)
    return min(wanted, available if size is None else size)


def choose(
    method: Coreset,
    names: Sequence[str],
    number: int,
    seed: int,
    *,
    losses: NDArray[np.float64] | None = None,
    features: NDArray[np.float32] | None = None,
) -> list[int]:
    """Return the positions of the chosen units, ascending.

    Args:
        method: Not ``none``.
        names: Of the units, distinct.
        number: At most ``len(names)``.
        seed: Decides between equal units, and all of ``random``.
        losses: Of each unit; needed by ``loss`` and ``hybrid``.
        features: Of each unit, rows of :func:`bigram_features`; needed by ``diversity`` and ``hybrid``.
    """
    order = seeded_order(names, seed)
    if method.needs_losses:
        if losses is None:
            raise ValueError(f"coreset {method}: needs losses")
        order = sorted(order, key=lambda index: -losses[index])
    candidates = order[: HYBRID_CANDIDATES * number] if method is Coreset.HYBRID else order
    if method in {Coreset.DIVERSITY, Coreset.HYBRID}:
        if features is None:
            raise ValueError(f"coreset {method}: needs features")
        return sorted(candidates[place] for place in farthest_first(features[candidates], number))
    return sorted(candidates[:number])


def farthest_first(features: NDArray[np.float32], number: int) -> list[int]:
    """Return the first row, then again and again the row that is farthest from all returned ones.

    No row is farther from the returned ones than twice the smallest radius that is possible with so many (Gonzalez
    1985, "Clustering to minimize the maximum intercluster distance"; as a coreset: Sener & Savarese 2018).

    Args:
        features: Shape (rows, dimensions).
        number: At most the number of rows.
    """
    if not number:
        return []
    chosen = [0]
    distances = squared_distances(features, 0)
    while len(chosen) < number:
        distances[chosen[-1]] = -1.0  # equal rows have distance 0, and are chosen once each
        chosen.append(int(np.argmax(distances)))
        distances = np.minimum(distances, squared_distances(features, chosen[-1]))
    return chosen


def squared_distances(features: NDArray[np.float32], row: int) -> NDArray[np.float32]:
    """Return the squared Euclidean distance of every row to one row."""
    difference: NDArray[np.float32] = features - features[row]
    squared: NDArray[np.float32] = np.einsum("ij,ij->i", difference, difference)
    return squared


def bigram_features(token_lists: Sequence[NDArray[np.int64]]) -> NDArray[np.float32]:
    """Return the counts of each list's token bigrams as a vector of length 1, shape (lists, ``DIMENSIONS``).

    Bigrams are hashed into signed buckets, which keeps inner products in expectation (Weinberger et al. 2009, "Feature
    Hashing for Large Scale Multitask Learning"). A list without a bigram has the vector 0.
    """
    features = np.zeros((len(token_lists), DIMENSIONS), dtype=np.float32)
    for row, tokens in enumerate(token_lists):
        hashes = _bigram_hashes(tokens)
        buckets = (hashes >> np.uint64(32)).astype(np.int64) % DIMENSIONS
        signs = np.where(hashes >> np.uint64(63), 1.0, -1.0)
        features[row] = np.bincount(buckets, weights=signs, minlength=DIMENSIONS)
    norms = np.linalg.norm(features, axis=1, keepdims=True)
    return (features / np.where(norms > 0, norms, 1)).astype(np.float32)


def _bigram_hashes(tokens: NDArray[np.int64]) -> NDArray[np.uint64]:
    words = tokens.astype(np.uint64)
    mixed = words[:-1] * _MIX + words[1:] * _MIX_NEXT
    mixed ^= mixed >> np.uint64(29)
    mixed *= _MIX
    return mixed
