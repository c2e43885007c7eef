"""Notices: what a migration changed in what the user had stored, told once."""

from sqlalchemy import select, update

from .database.clock import utc_now
from .database.control_database import ControlDatabase
from .database.tables import NoticeRow
from .paths import ControlPaths, HasPath


def unseen_notices(data_dir: HasPath) -> tuple[str, ...]:
    """Return the notices that were not shown yet, oldest first, and mark them as shown."""
    database = ControlDatabase(ControlPaths.of(data_dir))
    unseen = (
        select(NoticeRow.notice_id, NoticeRow.text).where(NoticeRow.shown_at.is_(None)).order_by(NoticeRow.notice_id)
    )
    with database.read() as session:
        if not session.execute(unseen.limit(1)).all():
            return ()
    with database.write() as session:
        rows = session.execute(unseen).all()
        shown = update(NoticeRow).where(NoticeRow.notice_id.in_([identity for identity, _ in rows]))
        session.execute(shown.values(shown_at=utc_now()))
    return tuple(text for _, text in rows)
