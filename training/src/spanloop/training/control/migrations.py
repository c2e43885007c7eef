"""Migrations of the control database's rows from one schema version to the next."""

import json
from typing import Any

from sqlalchemy import Connection, select, update
from sqlalchemy.orm import InstrumentedAttribute

from spanloop.semconv.enums import JobKind

from .tables import Base, JobRow, ScheduleRow


def create_tables(connection: Connection) -> None:
    """To schema version 1: create all tables."""
    Base.metadata.create_all(connection)


def name_dr_grpo(connection: Connection) -> None:
    """To schema version 2: jobs and schedules of the kind ``grpo`` become ``dr_grpo``.

    Up to version 1 the kind ``grpo`` had the advantages and the loss of Dr. GRPO. With the new name a stored schedule
    trains as before, and a job says what it did. A spec that is no JSON object stays as it is.
    """
    for spec, identity in ((JobRow.spec, JobRow.job_id), (ScheduleRow.spec, ScheduleRow.schedule_id)):
        _rename(connection, spec, identity)


def _rename(connection: Connection, spec: InstrumentedAttribute[str], identity: InstrumentedAttribute[str]) -> None:
    for key, text in connection.execute(select(identity, spec)).all():
        settings = _settings(text)
        if settings.get("kind") == JobKind.GRPO:
            renamed = json.dumps(settings | {"kind": JobKind.DR_GRPO.value})
            connection.execute(update(spec.class_).where(identity == key).values(spec=renamed))


def _settings(text: str) -> dict[str, Any]:
    try:
        settings = json.loads(text)
    except ValueError:
        return {}
    return settings if isinstance(settings, dict) else {}
