"""Migrations of the control database's rows from one schema version to the next."""

import json
from typing import Any, Final, cast

from sqlalchemy import Connection, insert, inspect, select, text, update
from sqlalchemy.schema import CreateColumn

from spanloop.training.jobs.kinds import JobKind

from .clock import utc_now
from .tables import Base, JobRow, NoticeRow, ScheduleRow

_SPECS: Final = ((JobRow, JobRow.job_id), (ScheduleRow, ScheduleRow.schedule_id))
"""Tables with a job's spec, and their keys."""


def create_tables(connection: Connection) -> None:
    """To schema version 1: create all tables."""
    Base.metadata.create_all(connection)


def name_dr_grpo(connection: Connection) -> None:
    """To schema version 2: jobs and schedules of the kind ``grpo`` become ``dr_grpo``.

    Up to version 1 the kind ``grpo`` had the advantages and the loss of Dr. GRPO. With the new name a stored schedule
    trains as before, and a job says what it did. A spec that is no JSON object stays as it is.
    """
    for table, key in _SPECS:
        for identity, spec in connection.execute(select(key, table.spec)).all():
            settings = _settings(spec)
            if settings.get("kind") == JobKind.GRPO:
                renamed = json.dumps(settings | {"kind": JobKind.DR_GRPO.value})
                connection.execute(update(table).where(key == identity).values(spec=renamed))


def deploy_by_rule(connection: Connection) -> None:
    """To schema version 3: aliases and decisions; ``deploy`` means "when the promotion rule says so".

    A stored spec stays as it is: what changes is what its ``deploy`` means, and the user is told so once.
    """
    Base.metadata.create_all(connection)
    schedules = [
        identity
        for identity, spec in connection.execute(select(ScheduleRow.schedule_id, ScheduleRow.spec)).all()
        if _settings(spec).get("deploy") is True
    ]
    if schedules:
        notice = (
            f"{', '.join(schedules)}: --deploy now deploys a new version when the promotion rule says so. Before, "
            "every new version was deployed. For that, schedule it again with --deploy-always."
        )
        connection.execute(insert(NoticeRow).values(text=notice, created_at=utc_now()))


def add_ticks(connection: Connection) -> None:
    """To schema version 4: ticks, triggers and budgets of schedules; run times and retries of jobs.

    A stored schedule goes on with its cron expression or its time.
    """
    Base.metadata.create_all(connection)
    for name in (JobRow.__tablename__, ScheduleRow.__tablename__):
        stored = {column["name"] for column in inspect(connection).get_columns(name)}
        for column in Base.metadata.tables[name].columns:
            if column.name not in stored:
                definition = CreateColumn(column).compile(dialect=connection.dialect)
                connection.execute(text(f"ALTER TABLE {name} ADD COLUMN {definition}"))


def add_leaders(connection: Connection) -> None:
    """To schema version 5: the leadership of schedulers, and verdicts about canaries that are being carried out."""
    Base.metadata.create_all(connection)


def _settings(spec: str) -> dict[str, Any]:
    try:
        settings = json.loads(spec)
    except ValueError:
        return {}
    return cast("dict[str, Any]", settings) if isinstance(settings, dict) else {}
