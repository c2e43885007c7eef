"""A scheduler of pipelines: threads that do one step at a time, in a given order, and are killed or hang between steps.

A step is what a pipeline does between two requests to ClickHouse, or transactions of the control database. A pipeline
that is killed sends nothing more, whatever its clean-up wants; one that hangs also does not renew its leases.
"""

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from spanloop.foundation.control.sessions import ControlSessions
from spanloop.foundation.errors import DataDirectoryError, StoreError
from spanloop.pipeline import run
from spanloop.pipeline.sharing import Sharing
from spanloop.pipeline.sharing.registration import Registration
from spanloop.store import Store

PATIENCE_S = 60


class KilledError(BaseException):
    """Ends a killed pipeline."""


DOUBLED = """
SELECT arrayJoin(trace_ids) AS trace_id FROM episodes FINAL WHERE is_deleted = 0 GROUP BY trace_id HAVING count() > 1
"""


def doubled_traces(store: Store) -> list[str]:
    """Return the traces of two current episodes: one pipeline alone never leaves any, not for a moment."""
    return [str(each) for each in store.connection.query(DOUBLED, doing="looking for doubled traces")["trace_id"]]


class Scheduled(threading.Thread):
    """A pipeline that converts whenever something is new, step by step."""

    def __init__(self, store: Store, folder: Path, *, batch_spans: int) -> None:
        super().__init__(daemon=True)
        self.is_killed = False
        self.may_end = False
        self.error: Exception | None = None
        self._running = threading.Event()
        self._running.set()
        self._turn = threading.Semaphore(0)
        self._waits = threading.Event()
        self._batch_spans = batch_spans
        self._store: Any = _StoreInSteps(store, self)
        sessions = _SessionsInSteps(folder, self)
        self._registration = Registration(sessions)
        self._sharing = Sharing(sessions, self._registration)

    def run(self) -> None:
        """Convert until there is nothing new and it may end."""
        try:
            with self._registration.renewed_by_thread():
                while True:
                    may_end = self.may_end
                    self._registration.ensure()
                    run(self._store, batch_spans=self._batch_spans, sharing=self._sharing)
                    if may_end:
                        return
        except KilledError:
            pass
        except Exception as error:  # noqa: BLE001 - the test reports it
            self.error = error
        finally:
            self._waits.set()

    def pause(self, away: Exception) -> None:
        """Wait for a turn, in the pipeline's thread; any thread of it waits while it hangs.

        Args:
            away: What a thread that renews leases gets in a killed pipeline; it tolerates that.
        """
        if threading.current_thread() is self:
            self._waits.set()
            self._turn.acquire()
        self._running.wait()
        if self.is_killed:
            raise KilledError if threading.current_thread() is self else away

    def step(self) -> None:
        """Let it do one step; return when it waits for the next."""
        if self.is_alive() and self._running.is_set() and self._waits.wait(PATIENCE_S):
            self._waits.clear()
            self._turn.release()
            self._waits.wait(PATIENCE_S)

    def kill(self) -> None:
        """Let it send nothing more."""
        self.is_killed = True
        self._running.set()
        self._turn.release(1_000)
        self.join(PATIENCE_S)

    def hang(self) -> None:
        """Stop all of its threads before their next step."""
        self._running.clear()

    def resume(self) -> None:
        """Let it go on."""
        self._running.set()

    def sleep(self, _seconds: float) -> None:
        """Wait for a turn in place of a time."""
        self.pause(StoreError("killed"))
        time.sleep(0.001)


class _StoreInSteps:
    """A store whose every request waits for a turn."""

    def __init__(self, store: Store, pipeline: Scheduled) -> None:
        self._store = store
        self._pipeline = pipeline

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._store, name)

        def request(*arguments: Any, **options: Any) -> Any:
            self._pipeline.pause(StoreError("killed"))
            result = method(*arguments, **options)
            if name == "insert" and arguments[0] == "episodes":
                assert not doubled_traces(self._store)
            return result

        return request


class _SessionsInSteps(ControlSessions):
    """Sessions of the control database, each of which waits for a turn."""

    def __init__(self, folder: Path, pipeline: Scheduled) -> None:
        super().__init__(folder / "control.db")
        self._pipeline = pipeline

    @contextmanager
    def read(self) -> Generator[Session]:
        self._pipeline.pause(DataDirectoryError("killed"))
        with super().read() as session:
            yield session

    @contextmanager
    def write(self) -> Generator[Session]:
        self._pipeline.pause(DataDirectoryError("killed"))
        with super().write() as session:
            yield session


class SleepInSteps:
    """Stands for the module ``time`` where pipelines wait for each other."""

    monotonic = staticmethod(time.monotonic)

    @staticmethod
    def sleep(seconds: float) -> None:
        """Wait for a turn in a scheduled pipeline, else for a time."""
        thread = threading.current_thread()
        if isinstance(thread, Scheduled):
            thread.sleep(seconds)
        else:
            time.sleep(seconds)
