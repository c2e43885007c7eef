"""Tables of the control database: the newest schema, from which a new database is made.

Portable between SQLite and PostgreSQL: integers for time, text for JSON, no dialect-specific types.
"""

from datetime import datetime

from sqlalchemy import BigInteger, ForeignKey, Index, Integer, String, Text, UniqueConstraint
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from spanloop.foundation.control.clock import UtcMicros


class Base(DeclarativeBase):
    """Base of the mapped classes."""


class SchemaRow(Base):
    """One row: the schema version of the other tables."""

    __tablename__ = "control_schema"

    name: Mapped[str] = mapped_column(String(32), primary_key=True)
    version: Mapped[int] = mapped_column(Integer)


class JobRow(Base):
    """One job with its state, lease and runner process."""

    __tablename__ = "jobs"
    __table_args__ = (
        UniqueConstraint("schedule_id", "fired_for", name="one_job_for_each_firing"),
        Index("jobs_by_state", "state", "created_at"),
    )

    job_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    spec: Mapped[str] = mapped_column(Text)
    state: Mapped[str] = mapped_column(String(16))
    attempt: Mapped[int] = mapped_column(Integer, default=0)
    """Number of starts."""
    interruptions: Mapped[int] = mapped_column(Integer, default=0)
    """How often its runner or scheduler was killed since the job was submitted or last retried by the user."""
    created_at: Mapped[datetime] = mapped_column(UtcMicros)
    started_at: Mapped[datetime | None] = mapped_column(UtcMicros)
    finished_at: Mapped[datetime | None] = mapped_column(UtcMicros)
    step: Mapped[int] = mapped_column(Integer, default=0)
    steps_total: Mapped[int] = mapped_column(Integer, default=0)
    error: Mapped[str] = mapped_column(Text, default="")
    model_version: Mapped[str] = mapped_column(String(128), default="")

    lease_token: Mapped[int] = mapped_column(BigInteger, default=0)
    """The fencing token: grows with every lease and is never reused."""
    lease_owner: Mapped[str] = mapped_column(String(200), default="")
    """Identity of the process that runs the job; empty if the job has no lease."""
    lease_until: Mapped[datetime | None] = mapped_column(UtcMicros)
    runner: Mapped[str] = mapped_column(String(200), default="")
    """Identity of the leader of the job's process group; empty if no process was started under this lease."""

    schedule_id: Mapped[str | None] = mapped_column(String(64))
    fired_for: Mapped[datetime | None] = mapped_column(UtcMicros)

    ran_s: Mapped[int] = mapped_column(Integer, default=0, server_default="0")
    """Run time of the attempts that have ended."""
    retries: Mapped[int] = mapped_column(Integer, default=0, server_default="0")
    """How often it was requeued because a service was away or the disk was full."""
    retry_at: Mapped[datetime | None] = mapped_column(UtcMicros)
    """A queued job is not started before; None is at once."""


class LeaderRow(Base):
    """One leadership: which of several processes decides."""

    __tablename__ = "leaders"

    name: Mapped[str] = mapped_column(String(32), primary_key=True)
    owner: Mapped[str] = mapped_column(String(200), default="")
    """Identity of the leader's process; empty if it gave the leadership up."""
    token: Mapped[int] = mapped_column(BigInteger, default=0)
    """The fencing token: grows with every leader and is never reused."""
    until: Mapped[datetime] = mapped_column(UtcMicros)
    """By the database's clock."""


class ScheduleRow(Base):
    """One schedule: what submits its job, and when it is looked at next."""

    __tablename__ = "schedules"

    schedule_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    spec: Mapped[str] = mapped_column(Text)
    cron: Mapped[str] = mapped_column(String(200), default="")
    created_at: Mapped[datetime] = mapped_column(UtcMicros)
    next_at: Mapped[datetime | None] = mapped_column(UtcMicros)
    """The next tick; None if there is none left."""
    last_at: Mapped[datetime | None] = mapped_column(UtcMicros)
    last_job_id: Mapped[str] = mapped_column(String(64), default="")
    settings: Mapped[str] = mapped_column(Text, default="{}", server_default="{}")
    """JSON of a ``ScheduleSettings``."""
    paused_at: Mapped[datetime | None] = mapped_column(UtcMicros)
    """Since when it does not tick; None if it does."""


class ModelVersionRow(Base):
    """One complete version of a model."""

    __tablename__ = "model_versions"
    __table_args__ = (UniqueConstraint("job_id", name="one_version_for_each_job"),)

    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    number: Mapped[int] = mapped_column(Integer, primary_key=True)
    parent: Mapped[str] = mapped_column(String(128), default="")
    job_id: Mapped[str | None] = mapped_column(String(64))
    created_at: Mapped[datetime] = mapped_column(UtcMicros)
    details: Mapped[str] = mapped_column(Text, default="{}")
    """Metadata of the caller, a JSON object."""
    weights_sha256: Mapped[str] = mapped_column(String(64))
    size_bytes: Mapped[int] = mapped_column(BigInteger)


class DeploymentRow(Base):
    """One successful deployment; the gateway serves the newest."""

    __tablename__ = "deployments"

    deployment_id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=True)
    name: Mapped[str] = mapped_column(String(64))
    number: Mapped[int] = mapped_column(Integer)
    deployed_at: Mapped[datetime] = mapped_column(UtcMicros)
    job_id: Mapped[str | None] = mapped_column(ForeignKey("jobs.job_id"))


class AliasRow(Base):
    """One move of an alias; the newest row of an alias has the version that it names."""

    __tablename__ = "aliases"
    __table_args__ = (Index("aliases_by_name", "name", "alias"),)

    move_id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=True)
    name: Mapped[str] = mapped_column(String(64))
    alias: Mapped[str] = mapped_column(String(64))
    number: Mapped[int] = mapped_column(Integer)
    """Of the version; 0 when the alias was removed."""
    rolls_back_to: Mapped[str] = mapped_column(String(128), default="")
    """The ``name@version`` before it, which may be of another model; empty when there was none."""
    since: Mapped[datetime] = mapped_column(UtcMicros)


class DecisionRow(Base):
    """One decision about a candidate."""

    __tablename__ = "promotion_decisions"
    __table_args__ = (Index("decisions_by_name", "name", "decision_id"),)

    decision_id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=True)
    decided_at: Mapped[datetime] = mapped_column(UtcMicros)
    name: Mapped[str] = mapped_column(String(64))
    candidate: Mapped[str] = mapped_column(String(128))
    champion: Mapped[str] = mapped_column(String(128), default="")
    rule: Mapped[str] = mapped_column(Text, default="")
    """JSON; empty when no rule was asked."""
    verdict: Mapped[str] = mapped_column(String(16))
    evidence: Mapped[str] = mapped_column(Text)
    """JSON."""
    job_id: Mapped[str | None] = mapped_column(String(64))


class PendingDecisionRow(Base):
    """A decision about a canary that is being carried out."""

    __tablename__ = "canary_verdicts"

    canary: Mapped[str] = mapped_column(String(64), primary_key=True)
    document: Mapped[str] = mapped_column(Text)
    """JSON."""


class TickRow(Base):
    """One tick of a schedule, or several in a row with the same result."""

    __tablename__ = "schedule_ticks"
    __table_args__ = (Index("ticks_by_schedule", "schedule_id", "tick_id"),)

    tick_id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=True)
    schedule_id: Mapped[str] = mapped_column(String(64))
    ticked_at: Mapped[datetime] = mapped_column(UtcMicros)
    """Of the last one."""
    times: Mapped[int] = mapped_column(Integer, default=1)
    verdict: Mapped[str] = mapped_column(String(16))
    reason: Mapped[str] = mapped_column(Text)
    job_id: Mapped[str] = mapped_column(String(64), default="")
    """The job that it submitted; of a loop the round, as ``round-3``."""


class LoopRoundRow(Base):
    """One round of the loop of a model: its finished steps, and its end."""

    __tablename__ = "loop_rounds"

    model: Mapped[str] = mapped_column(String(64), primary_key=True)
    number: Mapped[int] = mapped_column(Integer, primary_key=True)
    """From 1."""
    champion: Mapped[str] = mapped_column(String(128))
    """``name@version`` that collects, and that the round trains."""
    candidate: Mapped[str] = mapped_column(String(128), default="")
    steps: Mapped[str] = mapped_column(Text, default="[]")
    """JSON list of the steps that were begun, in order."""
    outcome: Mapped[str] = mapped_column(String(16), default="")
    """Empty while the round is open."""
    reason: Mapped[str] = mapped_column(Text, default="")
    started_at: Mapped[datetime] = mapped_column(UtcMicros)
    ended_at: Mapped[datetime | None] = mapped_column(UtcMicros)


class AlertRuleRow(Base):
    """One rule that raises alerts."""

    __tablename__ = "alert_rules"

    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    condition: Mapped[str] = mapped_column(Text)
    """As a user writes it."""
    channels: Mapped[str] = mapped_column(Text)
    """JSON list of names of ``[alerts.channels]``."""
    created_at: Mapped[datetime] = mapped_column(UtcMicros)


class AlertRow(Base):
    """One alert: from when its rule's condition held until it did not, or one event, or one test."""

    __tablename__ = "alerts"
    __table_args__ = (UniqueConstraint("rule", "cause", name="one_alert_for_each_cause"),)

    alert_id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=True)
    rule: Mapped[str] = mapped_column(String(64))
    condition: Mapped[str] = mapped_column(Text)
    cause: Mapped[str] = mapped_column(String(128))
    """What is alerted once: a start of firing, a job's attempt, a decision, or a test."""
    opened_at: Mapped[datetime] = mapped_column(UtcMicros)
    clear_since: Mapped[datetime | None] = mapped_column(UtcMicros)
    """Since when the condition does not hold; None while it does."""
    resolved_at: Mapped[datetime | None] = mapped_column(UtcMicros)
    """When it ended; of an event or a test the same as ``opened_at``."""
    detail: Mapped[str] = mapped_column(Text)
    """What was measured, or what happened."""
    link: Mapped[str] = mapped_column(Text)
    """Path and query of the dashboard's page that shows the cause."""


class AlertDeliveryRow(Base):
    """One message about an alert to one channel."""

    __tablename__ = "alert_deliveries"
    __table_args__ = (Index("deliveries_by_time", "next_at"),)

    delivery_id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=True)
    alert_id: Mapped[int] = mapped_column(ForeignKey("alerts.alert_id"))
    channel: Mapped[str] = mapped_column(String(64))
    status: Mapped[str] = mapped_column(String(16))
    """What the message says: firing, resolved, happened or test."""
    detail: Mapped[str] = mapped_column(Text)
    """What was measured when the message was written, or what happened."""
    created_at: Mapped[datetime] = mapped_column(UtcMicros)
    attempts: Mapped[int] = mapped_column(Integer, default=0)
    next_at: Mapped[datetime | None] = mapped_column(UtcMicros)
    """The next attempt; None when it was received, or given up."""
    received_at: Mapped[datetime | None] = mapped_column(UtcMicros)
    error: Mapped[str] = mapped_column(Text, default="")
    """Why the last attempt failed."""


class PooledRunRow(Base):
    """One run of an agent whose attempts runners make."""

    __tablename__ = "pooled_runs"

    run_id: Mapped[str] = mapped_column(String(128), primary_key=True)
    request: Mapped[str] = mapped_column(Text)
    """JSON of a ``RunRequest``."""
    parallel: Mapped[int] = mapped_column(Integer)
    """Most attempts that are made at the same time, by all runners."""


class OfferRow(Base):
    """One start of an attempt that a run offers to runners."""

    __tablename__ = "offered_attempts"
    __table_args__ = (Index("offers_by_run", "run_id", "state", "offer_id"),)

    offer_id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=True)
    run_id: Mapped[str] = mapped_column(String(128))
    episode_id: Mapped[str] = mapped_column(String(64), unique=True)
    attempt: Mapped[str] = mapped_column(Text)
    """JSON of a ``TaskAttempt``."""
    state: Mapped[str] = mapped_column(String(16))
    lease_token: Mapped[int] = mapped_column(BigInteger, default=0)
    """The fencing token: grows with every lease."""
    lease_owner: Mapped[str] = mapped_column(String(200), default="")
    """Identity of the process that makes the attempt; empty while nobody has it."""
    lease_until: Mapped[datetime | None] = mapped_column(UtcMicros)
    """By the database's clock."""
    result: Mapped[str] = mapped_column(Text, default="")
    """JSON of the end, the verdict and the error of the grader; empty until it has ended."""


class RefusalRow(Base):
    """One runner that cannot make the attempts of a run."""

    __tablename__ = "attempt_refusals"

    run_id: Mapped[str] = mapped_column(String(128), primary_key=True)
    runner: Mapped[str] = mapped_column(String(200), primary_key=True)
    """Identity of the runner's process."""
    host: Mapped[str] = mapped_column(String(255))
    reason: Mapped[str] = mapped_column(Text)
    until: Mapped[datetime | None] = mapped_column(UtcMicros)
    """When it tries again, by the database's clock; None while the run's command runs."""
