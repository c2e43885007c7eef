"""Verdicts about canaries that are being carried out, in the control database, where every scheduler finds them."""

from sqlalchemy import delete, select

from spanloop.training.jobs.database.control_database import ControlDatabase
from spanloop.training.jobs.database.tables import CanaryVerdictRow


def save_verdict(database: ControlDatabase, canary: str, document: str) -> None:
    """Store a verdict before it is carried out."""
    with database.write() as session:
        session.merge(CanaryVerdictRow(canary=canary, document=document))


def stored_verdict(database: ControlDatabase) -> str | None:
    """Return the verdict that is being carried out, or was when its process ended."""
    with database.read() as session:
        return session.scalars(select(CanaryVerdictRow.document).limit(1)).first()


def remove_verdicts(database: ControlDatabase) -> None:
    """Forget the verdict: its decision is stored, or somebody has overtaken it."""
    with database.write() as session:
        session.execute(delete(CanaryVerdictRow))
