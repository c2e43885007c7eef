"""What one embedded server must have for itself before it starts: its data directory and its port.

Invariant: whoever holds the lock is the only process on ``clickhouse/``. The lock is the kernel's (``flock``), so it
goes when its process goes, however that ends.
"""

import fcntl
import os
import socket
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Final

from spanloop.datadir import DataDir, disk_error
from spanloop.semconv.errors import AlreadyRunningError, PortInUseError

HOST: Final = "127.0.0.1"


@contextmanager
def server_lock(data_dir: DataDir) -> Generator[None]:
    """Hold the lock of ``data_dir``'s embedded server.

    Raises:
        AlreadyRunningError: Another process holds it.
        DataDirectoryError: The lock file cannot be made.
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


def is_claimed(data_dir: DataDir) -> bool:
    """Whether some process holds the lock of ``data_dir``'s embedded server."""
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


def claim_port(data_dir: DataDir, port: int) -> int:
    """The port to listen on: ``port``, or for 0 the one of last time if it is free, else any free one.

    Keeping last time's port lets clients of a server that was restarted find it where it was.

    Raises:
        PortInUseError: ``port`` is taken.
    """
    if port:
        if not _is_free(port):
            raise PortInUseError(
                f"Port {port} on {HOST}, wanted for the embedded ClickHouse, is taken by another process.",
                next_step=f"Stop it (ss -ltnp 'sport = :{port}' shows it), or take another port; 0 picks a free one.",
            )
        return port
    memory = data_dir.clickhouse_conf / "port"
    with suppress(OSError, ValueError):
        last = int(memory.read_text(encoding="ascii"))
        if 0 < last < 65536 and _is_free(last):
            return last
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        chosen = int(probe.getsockname()[1])
    data_dir.write(memory, str(chosen))
    return chosen


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def _already_running(data_dir: DataDir, pid: str) -> AlreadyRunningError:
    return AlreadyRunningError(
        f"An embedded ClickHouse already runs on {data_dir.path} (process {pid or 'unknown'}).",
        next_step=f"Use it, or stop it with: kill {pid}" if pid else "Use it, or stop it.",
    )
