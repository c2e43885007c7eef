"""Sessions on the control database: SQLite in the data directory, or the database that ``SPANLOOP_CONTROL_URL`` names.

Invariant: there is one writer at a time, and a reader sees the state of one moment and never waits for a writer (both
in `engines`). An error of the driver is one of spanloop, without a password.
"""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from spanloop.foundation.errors import DataDirectoryError
from spanloop.semconv.environment import CONTROL_URL_ENV, read_setting

from .database_errors import to_spanloop_error
from .engines import open_engine, reader_of, shown_url, writer_of


class ControlSessions:
    """Opens sessions on the control database.

    Args:
        file: The SQLite file, whose folder must exist.
        url: SQLAlchemy URL; empty means ``$SPANLOOP_CONTROL_URL``, else the file.

    Raises:
        ConfigurationError: The URL cannot be used.
        DataDirectoryError: The folder of the file does not exist.
    """

    def __init__(self, file: Path, *, url: str = "") -> None:
        database_url = url or read_setting(CONTROL_URL_ENV)
        engine = open_engine(database_url or _sqlite_url(file))
        self._reader, self._writer = reader_of(engine), writer_of(engine)
        self.url: str = shown_url(engine.url)
        """Without user, password and options."""

    @contextmanager
    def read(self) -> Generator[Session]:
        """Open a read session that sees one consistent state."""
        with self._translate_errors(), Session(self._reader, expire_on_commit=False) as session:
            yield session

    @contextmanager
    def write(self) -> Generator[Session]:
        """Open the only write session, which commits at its end; an exception rolls it back."""
        with self._translate_errors(), Session(self._writer, expire_on_commit=False) as session, session.begin():
            session.connection()  # takes the lock now, and not with the first statement
            yield session

    @contextmanager
    def _translate_errors(self) -> Generator[None]:
        try:
            yield
        except DBAPIError as error:
            raise to_spanloop_error(error, self._reader.url) from error


def _sqlite_url(file: Path) -> str:
    if not file.parent.is_dir():
        raise DataDirectoryError(
            f"The data directory {file.parent} does not exist.", next_step=f"spanloop up --data-dir {file.parent}"
        )
    return f"sqlite:///{file}"
