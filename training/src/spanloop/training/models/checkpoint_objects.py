"""Checkpoints of a training in object storage, so that an attempt on another host goes on from the newest one.

Invariant: what is stored is a complete checkpoint. It is sent beside the training, which does not wait for it: a kill
costs the steps since the last one that was sent. Without object storage nothing here does anything.
"""

import logging
import shutil
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from spanloop.foundation.errors import ObjectStorageError
from spanloop.foundation.objects import object_storage
from spanloop.foundation.objects.store import files_below

from .checkpoints import Checkpoint, latest_checkpoint

_logger: Final = logging.getLogger(__name__)
_PREFIX: Final = "global_step_"
_POLL_S: Final = 1.0


class _StoppedError(Exception):
    """The training has ended, so that nothing needs the checkpoint that is being sent."""


class CheckpointObjects:
    """The checkpoints of one stage of a job.

    Args:
        root: The data directory.
        training: The stage (``training_ids``).
        directory: The checkpoints on this host.
        check_lease: Raises when another runner has the job.
    """

    def __init__(self, root: Path, training: str, directory: Path, check_lease: Callable[[], None]) -> None:
        storage = object_storage(root)
        self._store = None if storage is None else storage.store
        self._folder = f"jobs/{training}/checkpoints"
        self._directory = directory
        self._check_lease = check_lease
        self._stopped = threading.Event()

    def fetch_newest(self, *, at_most: int | None = None) -> None:
        """Fetch the newest stored checkpoint, of at most ``at_most`` steps, unless this host has one as new.

        Raises:
            ObjectStorageError: It cannot be fetched.
        """
        if self._store is None:
            return
        stored = [step for step in self._steps() if at_most is None or step <= at_most]
        here = latest_checkpoint(self._directory, at_most=at_most)
        if not stored or (here is not None and here.step >= stored[-1]):
            return
        name = f"{_PREFIX}{stored[-1]}"
        incoming, target = self._directory / f".{name}.incoming", self._directory / name
        _logger.info("fetching the checkpoint of step %s", stored[-1])
        self._store.fetch(self._store.get(f"{self._folder}/{name}"), incoming)
        shutil.rmtree(target, ignore_errors=True)  # one that a killed attempt began
        incoming.rename(target)

    @contextmanager
    def sent_beside(self) -> Generator[None]:
        """Send each new checkpoint while the context is active; a failure is logged, and tried again."""
        if self._store is None:
            yield
            return
        self._stopped.clear()
        thread = threading.Thread(target=self._send_new_ones, name="checkpoints")
        thread.start()
        try:
            yield
        finally:
            self._stopped.set()
            thread.join()

    def send(self, checkpoint: Checkpoint) -> None:
        """Store a complete checkpoint, and remove the older ones from the storage.

        Raises:
            JobLeaseLostError: Another runner has the job.
            ObjectStorageError: The storage cannot be written.
            OSError: The checkpoint was discarded meanwhile.
        """
        if self._store is None:
            return
        name = f"{self._folder}/{checkpoint.path.name}"
        files = files_below(checkpoint.path)
        self._store.put(name, files, before_manifest=self._check_lease, on_progress=self._stop_when_ended)
        for step in self._steps():
            if step < checkpoint.step:
                self._store.remove(f"{self._folder}/{_PREFIX}{step}")

    def remove(self) -> None:
        """Remove all of them from the storage; also those whose upload was interrupted.

        Raises:
            ObjectStorageError: The storage cannot be written.
        """
        if self._store is not None:
            self._store.remove_below(self._folder)

    def _send_new_ones(self) -> None:
        sent = max(self._steps_or_none(), default=0)
        while not self._stopped.wait(_POLL_S):
            newest = latest_checkpoint(self._directory)
            if newest is None or newest.step <= sent:
                continue
            try:
                self.send(newest)
            except _StoppedError:
                return
            except (ObjectStorageError, OSError) as error:
                _logger.warning("the checkpoint of step %s is not in object storage yet: %s", newest.step, error)
            except Exception:
                _logger.exception("checkpoints are not sent to object storage any more")
                return
            else:
                sent = newest.step
                _logger.info("the checkpoint of step %s is in object storage", sent)

    def _stop_when_ended(self, *_: object) -> None:
        if self._stopped.is_set():
            raise _StoppedError

    def _steps_or_none(self) -> list[int]:
        try:
            return self._steps()
        except ObjectStorageError:
            return []  # a checkpoint is sent once more

    def _steps(self) -> list[int]:
        if self._store is None:
            return []
        names = [name.rpartition("/")[2] for name in self._store.names(self._folder)]
        return sorted(int(name.removeprefix(_PREFIX)) for name in names if name.removeprefix(_PREFIX).isdigit())
