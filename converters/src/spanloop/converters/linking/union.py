"""Disjoint sets with union by size and path halving: near-linear, no recursion, the same sets in any order."""

from collections.abc import Iterable


class UnionFind:
    """Disjoint sets of names."""

    def __init__(self, members: Iterable[str]) -> None:
        self._parent = {member: member for member in members}
        self._size = dict.fromkeys(self._parent, 1)

    def find(self, member: str) -> str:
        """The representative of the set that holds ``member``."""
        parent = self._parent
        while parent[member] != member:
            parent[member] = parent[parent[member]]
            member = parent[member]
        return member

    def union(self, first: str, second: str) -> None:
        """Make one set of the two that hold ``first`` and ``second``."""
        one, other = self.find(first), self.find(second)
        if one == other:
            return
        if self._size[one] < self._size[other]:
            one, other = other, one
        self._parent[other] = one
        self._size[one] += self._size[other]
