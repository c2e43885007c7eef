"""A PostgreSQL server of the tests: Debian's package, a port of the loopback, a password."""

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Self
from uuid import uuid4

import psycopg
from psycopg import sql

from ...ports import free_port

PASSWORD: Final = "not-shown"
_START_TIMEOUT_S: Final = 60.0
_OPTIONS: Final = ("fsync=off", "shared_buffers=16MB", "max_connections=50", "autovacuum=off", "jit=off")


def find_programs() -> Path | None:
    """Return the folder of the newest installed server's programs; None if there is none."""
    folders = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/postgres")]
    return max(folders, key=lambda folder: int(folder.parent.name), default=None)


class PostgreSqlServer:
    """Runs in a temporary folder; as the user ``postgres`` when the tests are root, which the server refuses."""

    def __init__(self, programs: Path) -> None:
        self._programs = programs
        self._user = pwd.getpwnam("postgres") if os.getuid() == 0 else pwd.getpwuid(os.getuid())
        # Not below pytest's folder, which another user cannot enter.
        self._folder = Path(tempfile.mkdtemp(prefix="spanloop-postgresql-"))
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    @contextmanager
    def running(cls, programs: Path) -> Generator[Self]:
        """Make a server, start it, and leave nothing of it behind."""
        server = cls(programs)
        try:
            server.create()
            server.start()
            yield server
        finally:
            server.kill()
            shutil.rmtree(server._folder)

    def create(self) -> None:
        password_file = self._folder / "password"
        password_file.write_text(PASSWORD)
        for path in (self._folder, password_file):
            os.chown(path, self._user.pw_uid, self._user.pw_gid)
        arguments = [
            f"--pgdata={self._folder}/data", "--username=spanloop", f"--pwfile={password_file}",
            "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync",
        ]  # fmt: skip
        assert self._popen("initdb", arguments).wait() == 0, (self._folder / "log").read_text()

    def start(self) -> None:
        settings = (f"port={self.port}", "listen_addresses=127.0.0.1", f"unix_socket_directories={self._folder}")
        options = [word for setting in (*settings, *_OPTIONS) for word in ("-c", setting)]
        give_up_at = time.monotonic() + _START_TIMEOUT_S
        while True:
            if self._process is None or self._process.poll() is not None:
                # After a kill it refuses to start until the processes of the killed one have ended.
                self._process = self._popen("postgres", ["-D", f"{self._folder}/data", *options])
            with suppress(psycopg.OperationalError):
                self._connect().close()
                return
            assert time.monotonic() < give_up_at, (self._folder / "log").read_text()
            time.sleep(0.05)

    def kill(self) -> None:
        """Kill -9 the server; its other processes notice that and end."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def url(self, database: str) -> str:
        return f"postgresql+psycopg://spanloop:{PASSWORD}@127.0.0.1:{self.port}/{database}"

    @contextmanager
    def database(self) -> Generator[str]:
        """Make an empty database for the block; yields its URL."""
        name = f"t_{uuid4().hex[:12]}"
        with self._connect() as connection:
            connection.execute(sql.SQL("CREATE DATABASE {} STRATEGY FILE_COPY").format(sql.Identifier(name)))
        yield self.url(name)
        with self._connect() as connection:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))

    def _connect(self) -> psycopg.Connection:
        return psycopg.connect(
            host="127.0.0.1", port=self.port, user="spanloop", password=PASSWORD, dbname="postgres", autocommit=True
        )

    def _popen(self, program: str, arguments: list[str]) -> subprocess.Popen[bytes]:
        with (self._folder / "log").open("ab") as log:
            return subprocess.Popen(
                [str(self._programs / program), *arguments],
                stdout=log,
                stderr=log,
                cwd=self._folder,
                user=self._user.pw_uid,
                group=self._user.pw_gid,
                extra_groups=[],
            )
