"""Tables of the control database: the pipelines that run, and the work that they share.

They hold nothing that outlives the processes: a plan that is lost is made again from the watermark. So they are not
copied with a control database, and a later layout gets other names.
"""

from datetime import datetime

from sqlalchemy import BigInteger, Boolean, Integer, LargeBinary, String, Text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from spanloop.foundation.control.clock import UtcMicros


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


class PlanRow(Base):
    """A page of batches that several pipelines convert."""

    __tablename__ = "pipeline_plans"
    __table_args__ = ({"sqlite_autoincrement": True},)

    plan_id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=True)
    run_owner: Mapped[str] = mapped_column(String(200))
    """Holder of the lease in ClickHouse, under which the batches are converted."""
    is_full: Mapped[bool] = mapped_column(Boolean)
    """Whether unchanged episodes are written too."""
    ended_claims: Mapped[int] = mapped_column(Integer, default=0)
    """Number of claims that have ended."""


class BatchRow(Base):
    """One batch of a plan."""

    __tablename__ = "pipeline_batches"

    plan_id: Mapped[int] = mapped_column(Integer, primary_key=True)
    position: Mapped[int] = mapped_column(Integer, primary_key=True)
    traces: Mapped[bytes] = mapped_column(LargeBinary)
    """The traces that are not converted yet, as an Arrow file."""
    holder: Mapped[int | None] = mapped_column(Integer)
    """Token of the pipeline that converts it; None while it waits."""
    blocked_by: Mapped[int | None] = mapped_column(Integer)
    """The claim that it waits for."""
    is_done: Mapped[bool] = mapped_column(Boolean, default=False)
    report: Mapped[str] = mapped_column(Text, default="")
    """JSON of the counts of what is converted; empty before."""


class ClaimRow(Base):
    """One closed set that is being converted, or was during the plan."""

    __tablename__ = "pipeline_claims"
    __table_args__ = ({"sqlite_autoincrement": True},)

    claim_id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=True)
    plan_id: Mapped[int] = mapped_column(Integer, index=True)
    position: Mapped[int] = mapped_column(Integer)
    holder: Mapped[int] = mapped_column(Integer)
    """Token of the pipeline."""
    ids: Mapped[bytes] = mapped_column(LargeBinary)
    """Hashes of the ids of traces and episodes, 8 bytes each."""
    ended: Mapped[int | None] = mapped_column(Integer)
    """Number of its end among the ends of the plan's claims; None while it is held."""
