"""What to do about an error of the control database.

Invariant: the message has the driver's text and the shown URL, and never a password, an SQL statement or its
parameters.
"""

from typing import Final

from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError, OperationalError

from spanloop.foundation.errors import DataDirectoryError
from spanloop.semconv.environment import CONTROL_URL_ENV

from .engines import LOCK_TIMEOUT_S, shown_url

_SQLITE_ADVICE: Final = "Check that the disk has room and that the file is writable by you."
_ADVICE: Final = {
    "25006": f"The server is a read-only copy: let {CONTROL_URL_ENV} name the primary.",
    "25P03": f"This process stopped for {LOCK_TIMEOUT_S} s during a write. Try again.",
    "42501": f"Let the user of {CONTROL_URL_ENV} own the database, or GRANT ALL ON SCHEMA public.",
    "53100": "Free disk space on the database server.",
    "53200": "Free memory on the database server.",
    "55P03": f"Another process has been writing for {LOCK_TIMEOUT_S} s; pg_stat_activity shows which. Try again.",
}
"""By SQLSTATE."""
_SERVER_LOG: Final = "The log of the database server may say more."


def to_spanloop_error(error: DBAPIError, url: URL) -> DataDirectoryError:
    """Translate an error of the database's driver."""
    shown, reason = shown_url(url), " ".join(str(error.orig).split()).rstrip(".?")
    is_transient = isinstance(error, OperationalError) or error.connection_invalidated
    if url.get_backend_name() == "sqlite":
        return DataDirectoryError(
            f"The control database {shown} rejected a statement: {reason}.",
            next_step=_SQLITE_ADVICE,
            is_transient=is_transient,
        )
    state: str | None = getattr(error.orig, "sqlstate", None)
    if state not in _ADVICE and (error.connection_invalidated or (state is None and is_transient)):
        return DataDirectoryError(
            f"The control database {shown} is unreachable: {reason}.",
            next_step=f"Check that the server runs ({_probe(url)}), and that user, password and database in "
            f"{CONTROL_URL_ENV} are right. A change that was being made is stored completely, or not at all.",
            is_transient=True,
        )
    return DataDirectoryError(
        f"The control database {shown} rejected a statement: {reason}.",
        next_step=_ADVICE.get(state or "", _SERVER_LOG),
        is_transient=is_transient,
    )


def _probe(url: URL) -> str:
    host = f" --host {url.host}" if url.host else ""
    return f"pg_isready{host} --port {url.port or 5432}"
