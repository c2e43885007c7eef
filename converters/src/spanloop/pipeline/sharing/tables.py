"""Tables of the control database: the work that pipelines share.

They and the table of running pipelines hold nothing that outlives the processes: a plan that is lost is made again from
the watermark. So they are not copied with a control database, and a later layout gets other names.
"""

from sqlalchemy import Boolean, Integer, LargeBinary, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from spanloop.foundation.control.pipelines import Base


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
