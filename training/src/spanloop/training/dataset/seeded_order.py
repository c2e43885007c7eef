"""An order that only names and a seed decide."""

from collections.abc import Sequence
from hashlib import blake2b


def seeded_order(names: Sequence[str], seed: int) -> list[int]:
    """Return the positions of ``names`` by a hash of seed and name; it does not depend on their own order."""
    return sorted(range(len(names)), key=lambda index: (seeded_hash(names[index], seed), names[index]))


def seeded_hash(name: str, seed: int) -> bytes:
    """Return eight bytes."""
    return blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()
