"""The condition by which a dialect knows its spans, without the parts that absent attributes decide.

Few of the attributes that dialects ask for occur in a batch. Invariant: the reduced condition is true of exactly the
spans of which the whole one is.
"""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import polars as pl

PREFIX: Final = "attr:"
"""Columns of attributes begin with it."""


@dataclass(frozen=True, eq=False)
class Condition:
    """A boolean expression, taken apart at each ``&`` and ``|``."""

    expression: pl.Expr
    roots: frozenset[str]
    """The columns that it reads."""
    is_any: bool = False
    """Whether one of the operands suffices."""
    operands: tuple["Condition", ...] = ()
    """Empty for an expression of any other kind."""

    def reduced(self, columns: AbstractSet[str]) -> pl.Expr | bool:
        """The expression, or its value where the columns that it reads are null.

        Args:
            columns: Those that are not null.
        """
        if not self.operands:
            return self._value_of_nulls if self.roots.isdisjoint(columns) else self.expression
        remaining: list[pl.Expr] = []
        for operand in self.operands:
            value = operand.reduced(columns)
            if isinstance(value, bool):
                if value is self.is_any:
                    return value
            else:
                remaining.append(value)
        if len(remaining) == 2:
            first, second = remaining
            return first | second if self.is_any else first & second
        return remaining[0] if remaining else not self.is_any

    @cached_property
    def _value_of_nulls(self) -> bool:
        """Whether the expression is true where every attribute that it reads is absent."""
        nulls = pl.DataFrame({root: [None] for root in self.roots}, schema=dict.fromkeys(self.roots, pl.String))
        return bool(nulls.select(pl.lit(value=True) & self.expression).item())


def take_apart(expression: pl.Expr) -> Condition:
    """The condition that ``expression`` states."""
    roots = frozenset(expression.meta.root_names())
    operands = expression.meta.pop()
    if len(operands) == 2:
        first, second = operands[::-1]
        for is_any, joined in ((False, first & second), (True, first | second)):
            if joined.meta == expression:
                return Condition(expression, roots, is_any, (take_apart(first), take_apart(second)))
    return Condition(expression, roots)
