"""The pipelines that run, as rows of the control database; each is registered under a lease."""

from datetime import datetime
from typing import NamedTuple

from sqlalchemy import BigInteger, Integer, String, inspect, select
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from spanloop.foundation.leases import has_ended

from .clock import LeaseTime, UtcMicros, database_time
from .sessions import ControlSessions


class Base(DeclarativeBase):
    """Base of the mapped classes."""


class PipelineRow(Base):
    """One running pipeline, with its lease."""

    __tablename__ = "pipelines"
    __table_args__ = ({"sqlite_autoincrement": True},)

    token: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=True)
    """The fencing token: grows with every registration and is never reused."""
    owner: Mapped[str] = mapped_column(String(200))
    """Identity of the process and its thread."""
    until: Mapped[datetime] = mapped_column(UtcMicros)
    """End of its lease, by the database's clock."""
    started_at: Mapped[datetime] = mapped_column(UtcMicros)
    activity: Mapped[str] = mapped_column(String(16), default="idle")
    spans: Mapped[int] = mapped_column(BigInteger, default=0)
    """New spans that it has converted since it registered, in batches of other pipelines too."""


class PipelineState(NamedTuple):
    """A pipeline that runs."""

    owner: str
    """Identity of its process (machine:pid:start) and its thread."""
    activity: str
    spans: int
    """New spans that it has converted since it registered."""
    started_at: datetime


def running_pipelines(sessions: ControlSessions, *, lease_time: LeaseTime = database_time) -> list[PipelineState]:
    """Return the pipelines whose leases have not ended; none where the tables do not exist.

    Raises:
        DataDirectoryError: The control database is unreachable.
    """
    with sessions.read() as session:
        if not inspect(session.connection()).has_table(PipelineRow.__tablename__):
            return []
        now = lease_time(session)
        rows = session.scalars(select(PipelineRow).order_by(PipelineRow.token)).all()
    return [
        PipelineState(row.owner, row.activity, row.spans, row.started_at)
        for row in rows
        if row.until > now and not has_ended(row.owner)
    ]
