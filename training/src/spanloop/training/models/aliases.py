"""Aliases of model versions: names such as ``champion`` that move from one version to the next.

Invariant: a move is a new row, so what an alias named at any time stays known. Writers hold the database's write lock.
"""

from datetime import datetime
from typing import Final, NamedTuple

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from spanloop.foundation.errors import JobError
from spanloop.training.jobs.database.tables import AliasRow

REMOVED: Final = 0


class Alias(NamedTuple):
    """Where an alias is."""

    name: str
    """Of the model."""
    alias: str
    version: str
    """``v1``, ``v2``, …"""
    rolls_back_to: str
    """The ``name@version`` before it; empty when there was none."""
    since: datetime

    @property
    def reference(self) -> str:
        """The ``name@version`` that it names."""
        return f"{self.name}@{self.version}"


def find_alias(session: Session, name: str, alias: str) -> Alias | None:
    """Return where ``alias`` of a model is; None when it is nowhere."""
    newest = select(AliasRow).where(AliasRow.name == name, AliasRow.alias == alias)
    row = session.scalars(newest.order_by(AliasRow.move_id.desc()).limit(1)).first()
    return None if row is None or row.number == REMOVED else _value(row)


def list_aliases(session: Session, name: str = "") -> list[Alias]:
    """Return all aliases, or those of one model, by name."""
    newest = select(func.max(AliasRow.move_id)).group_by(AliasRow.name, AliasRow.alias)
    rows = select(AliasRow).where(AliasRow.move_id.in_(newest), AliasRow.number != REMOVED)
    if name:
        rows = rows.where(AliasRow.name == name)
    return [_value(row) for row in session.scalars(rows.order_by(AliasRow.name, AliasRow.alias))]


def list_moves(session: Session, name: str, alias: str) -> list[Alias]:
    """Return every version that ``alias`` of a model has named, the newest move first."""
    rows = select(AliasRow).where(AliasRow.name == name, AliasRow.alias == alias, AliasRow.number != REMOVED)
    return [_value(row) for row in session.scalars(rows.order_by(AliasRow.move_id.desc()))]


def move_alias(session: Session, name: str, alias: str, number: int, *, rolls_back_to: str, now: datetime) -> None:
    """Let ``alias`` name another version; the number `REMOVED` removes it."""
    session.add(AliasRow(name=name, alias=alias, number=number, rolls_back_to=rolls_back_to, since=now))
    session.flush()


def no_such_alias(session: Session, name: str, alias: str) -> JobError:
    """Return the error for an alias that a model does not have."""
    known = ", ".join(f"{each.alias} ({each.version})" for each in list_aliases(session, name))
    return JobError(
        f"Model {name!r} has no alias {alias!r}; its aliases: {known or 'none'}.",
        next_step=f"Set it: spanloop models alias {name}@v1 {alias}",
    )


def _value(row: AliasRow) -> Alias:
    return Alias(row.name, row.alias, f"v{row.number}", row.rolls_back_to, row.since)
