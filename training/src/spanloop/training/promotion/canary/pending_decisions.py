"""Decisions about canaries that are being carried out, in the control database, where every scheduler finds them."""

from sqlalchemy import delete, select

from spanloop.training.jobs.database.control_database import ControlDatabase
from spanloop.training.jobs.database.tables import PendingDecisionRow


def save_pending(database: ControlDatabase, canary: str, document: str) -> None:
    """Store a decision before it is carried out."""
    with database.write() as session:
        session.merge(PendingDecisionRow(canary=canary, document=document))


def stored_pending(database: ControlDatabase) -> str | None:
    """Return the decision that is being carried out, or was when its process ended."""
    with database.read() as session:
        return session.scalars(select(PendingDecisionRow.document).limit(1)).first()


def remove_pending(database: ControlDatabase) -> None:
    """Forget the decision: it is stored, or somebody has overtaken it."""
    with database.write() as session:
        session.execute(delete(PendingDecisionRow))
