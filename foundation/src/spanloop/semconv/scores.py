"""The range of scores, which every part that accepts, reads or trains on a score checks."""

from typing import Final

SCORE_LIMIT: Final = 1e12
"""Largest absolute value of a score.

Losses are computed in float32, whose largest value is 3.4e38, and NaN follows from an overflow. With this limit the
return of 1,000 scored calls is at most 1e15, the square of a difference of two returns at most 4e30, and a variance or
a critic's loss may add up the squares of 8e7 tokens.
"""
SCORE_RANGE: Final = f"a finite number between -{SCORE_LIMIT:.0e} and {SCORE_LIMIT:.0e}".replace("e+", "e")
"""The range in words, for error messages."""


def is_valid_score(value: float) -> bool:
    """Return whether a value lies in the range; NaN does not."""
    return abs(value) <= SCORE_LIMIT
