"""Choose which batch of a plan to take: traces that are near in time are often converted together.

Invariant: a pipeline goes on beside its last batch while no other pipeline holds a batch there, so that pipelines work
through different parts of a page and their closed sets seldom meet.
"""

from collections.abc import Sequence


def choose_position(free: Sequence[int], held: Sequence[int], last: int | None) -> int | None:
    """Return a free position, None when there is none.

    Args:
        free: Positions that may be taken.
        held: Positions of batches that are being converted.
        last: The position that this pipeline had before.
    """
    if not free:
        return None

    def distance(position: int) -> int:
        return min((abs(position - each) for each in held), default=len(free) + 1)

    beside = [
        position for position in free if last is not None and abs(position - last) == 1 and distance(position) > 1
    ]
    if beside:
        return min(beside)
    return max(free, key=lambda position: (distance(position), -position))
