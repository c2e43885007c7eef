"""Lock of the embedded server's data directory, and choice of its port.

Invariant: only the process that holds the lock uses ``clickhouse/``. The kernel releases the lock (``flock``) when the
process ends for any reason.
"""

import fcntl
import os
import socket
from collections.abc import Generator
from contextlib import contextmanager, suppress

from spanloop.foundation.errors import AlreadyRunningError, PortInUseError
from spanloop.foundation.paths import DataDir, disk_error

from .config import LOOPBACK


@contextmanager
def server_lock(data_dir: DataDir) -> Generator[None]:
    """Hold the lock of the embedded server of ``data_dir``.

    Raises:
        AlreadyRunningError: Another process holds the lock.
        DataDirectoryError: The lock file cannot be created.
    """
    path = data_dir.clickhouse_conf / "lock"
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise disk_error(data_dir.path, error) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        except BlockingIOError:
            raise _already_running(data_dir, os.read(descriptor, 32).decode(errors="replace").strip()) from None
        except OSError as error:
            raise disk_error(data_dir.path, error) from error
        yield
    finally:
        os.close(descriptor)


def is_locked(data_dir: DataDir) -> bool:
    """Return whether a process holds the lock of the embedded server of ``data_dir``."""
    try:
        descriptor = os.open(data_dir.clickhouse_conf / "lock", os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def choose_port(data_dir: DataDir, port: int, host: str = LOOPBACK) -> int:
    """Choose the port to listen on: ``port``, or for 0 the previous port if it is free, else any free port.

    Keeping the previous port lets clients reconnect after a restart of the server.

    Raises:
        PortInUseError: ``port`` is in use.
    """
    if port:
        if not (_is_free(port) and _is_free(port, host)):
            raise PortInUseError(
                f"Port {port} on {host}, requested for the embedded ClickHouse, is in use by another process.",
                next_step=f"Stop it (ss -ltnp 'sport = :{port}' shows it), or use another port; 0 chooses a free one.",
            )
        return port
    port_file = data_dir.clickhouse_conf / "port"
    with suppress(OSError, ValueError):
        previous = int(port_file.read_text(encoding="ascii"))
        if 0 < previous < 65536 and _is_free(previous):
            return previous
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        chosen = int(probe.getsockname()[1])
    data_dir.write(port_file, str(chosen))
    return chosen


def _is_free(port: int, host: str = LOOPBACK) -> bool:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def _already_running(data_dir: DataDir, pid: str) -> AlreadyRunningError:
    return AlreadyRunningError(
        f"An embedded ClickHouse already runs on {data_dir.path} (process {pid or 'unknown'}).",
        next_step=f"Use it, or stop it with: kill {pid}" if pid else "Use it, or stop it.",
    )
