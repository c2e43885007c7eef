"""Declarations of the store's tables: columns, ClickHouse types and meanings, each stated once.

A new column is declared here as the last of its table, and added to the database by a migration in `spanloop.store`.
"""

from collections.abc import Mapping
from typing import Final

from spanloop.foundation.errors import StoreError

from . import arrivals, canaries, data_sets, episodes, evaluation, journal, judgements, summaries, training
from .column import Column, Table

__all__ = ["TABLES", "Column", "Table", "declaration"]

_MODULES: Final = (arrivals, judgements, episodes, data_sets, summaries, training, evaluation, canaries, journal)
TABLES: Final[Mapping[str, Table]] = {
    value.name: value for module in _MODULES for value in vars(module).values() if isinstance(value, Table)
}
"""Every table of the database, and the view ``transitions``, by name."""


def declaration(name: str) -> Table:
    """Return the declaration of a table. StoreError: no table has this name."""
    if name not in TABLES:
        raise StoreError(f"There is no table {name!r}.", next_step=f"Use one of {', '.join(TABLES)}.")
    return TABLES[name]
