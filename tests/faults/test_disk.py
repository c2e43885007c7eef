"""The n-th operation on the spool's disk fails, for every n; and the power fails, at every n.

Each run is a short history of appends, blocks and commits. Afterwards the same process continues, and so do two others:
one reads the files as they are (after a kill -9), one reads only synced bytes (after a power cut). A dictionary stands
for ClickHouse: the first delivery of a block id counts, as with its deduplication.
"""

import asyncio
import itertools
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from spanloop.foundation.errors import DataDirectoryError
from spanloop.spool import Batch, Spool, SpoolDamageError, SpoolDiskError

from .disk import Disk, Fault
from .ledger import Balance, Ledger, balance, total

SCRATCH: Final = "/dev/shm" if Path("/dev/shm").is_dir() else None
SEGMENT_BYTES: Final = 250
EVERYTHING: Final = 10**6
ROUNDS: Final = 4


class SpoolRun:
    """One spool, its ledger, and its delivered blocks."""

    def __init__(self, root: Path, disk: Disk, *, is_lasting: bool) -> None:
        self.root = root
        self.disk = disk
        self.directory = root / "spool"
        self.ledger = Ledger(root / "ledger")
        self.delivered: dict[str, list[int]] = {}
        # A disk that fails the truncation of a failed write may keep the write: the outcome is unknown.
        self._settle_failed = self.ledger.unknown if is_lasting else self.ledger.refused

    async def live(self, spool: Spool) -> None:
        """Append and drain; retry a failed disk operation once."""
        for number in range(ROUNDS):
            await asyncio.gather(*(self._append(spool) for _ in range(2)))
            if number % 2:
                self._drain_one(spool)

    async def _append(self, spool: Spool) -> None:
        ids = self.ledger.new_ids(1)
        self.ledger.attempted(ids)
        try:
            await spool.append_all([("traces", b"%d" % span_id + b"." * 40) for span_id in ids])
        except SpoolDiskError:
            self._settle_failed(ids)
        else:
            self.ledger.acknowledged(ids)

    def _drain_one(self, spool: Spool) -> None:
        batch: Batch | None = None
        for _ in range(2):  # retry a disk that fails once
            try:
                batch = batch or spool.read(EVERYTHING)
                if batch is not None:
                    deliver(self.delivered, batch)
                    spool.commit(batch)
            except (OSError, SpoolDamageError):
                continue
            return

    def images(self, name: str) -> tuple[Path, Path]:
        """Return the maximum and the minimum that another process may read now."""
        most, least = self.root / f"{name}-most", self.root / f"{name}-least"
        most.mkdir()
        for path in self.directory.iterdir():
            if path.is_file():
                shutil.copyfile(path, most / path.name)
        self.disk.power_cut(least)
        return most, least


class Snapshot(NamedTuple):
    """The state at one moment."""

    ledger: Path
    delivered: dict[str, list[int]]
    images: tuple[Path, Path]

    def balances(self) -> Iterator[Balance]:
        """Continue from each image, and yield its balance."""
        for image in self.images:
            delivered = dict(self.delivered)
            with Spool(image, max_bytes=EVERYTHING) as spool:
                drain(spool, delivered)
                assert spool.stats.records == 0
            yield balance(self.ledger, count(delivered))


def deliver(delivered: dict[str, list[int]], batch: Batch) -> None:
    delivered.setdefault(batch.block_id, [int(record.body.partition(b".")[0]) for record in batch.records])


def drain(spool: Spool, delivered: dict[str, list[int]]) -> None:
    while (batch := spool.read(EVERYTHING)) is not None:
        deliver(delivered, batch)
        spool.commit(batch)


def count(delivered: dict[str, list[int]]) -> Counter[int]:
    return Counter(itertools.chain.from_iterable(delivered.values()))


def run(fault: Fault, nth: int, *, is_lasting: bool = False) -> tuple[str, list[Balance]]:
    """Run one history with one fault; return the failed operation, and the balances of all continuations."""
    with tempfile.TemporaryDirectory(dir=SCRATCH) as folder, pytest.MonkeyPatch.context() as patch:
        root = Path(folder)
        disk = Disk(patch, root / "spool")
        spool_run = SpoolRun(root, disk, is_lasting=is_lasting)
        snapshots: list[Snapshot] = []

        def take_snapshot(name: str) -> None:
            ledger = spool_run.ledger.snapshot(root / f"{name}-ledger")
            snapshots.append(Snapshot(ledger, dict(spool_run.delivered), spool_run.images(name)))

        disk.fail_at(nth, fault, is_lasting=is_lasting, at_nth=lambda: take_snapshot("then"))
        try:
            spool = Spool(spool_run.directory, max_bytes=EVERYTHING, segment_bytes=SEGMENT_BYTES)
        except DataDirectoryError:  # the next attempt can open it
            disk.repair()
            spool = Spool(spool_run.directory, max_bytes=EVERYTHING, segment_bytes=SEGMENT_BYTES)
        asyncio.run(spool_run.live(spool))
        take_snapshot("now")
        disk.repair()
        drain(spool, spool_run.delivered)
        assert spool.stats.records == 0
        spool.close()
        spool_run.ledger.close()
        balances = [balance(spool_run.ledger.path, count(spool_run.delivered))]
        for snapshot in snapshots:
            balances.extend(snapshot.balances())
        return disk.failed, balances


def for_every_n(run_once: Callable[[int], tuple[str, list[Balance]]]) -> tuple[list[str], Balance]:
    """Run for n = 1, 2, … until there is no n-th operation; return the operations and the total balance."""
    operations: list[str] = []
    balances: list[Balance] = []
    for nth in itertools.count(1):
        operation, run_balances = run_once(nth)
        if not operation:
            break
        operations.append(operation)
        for at, result in enumerate(run_balances):
            assert result.is_clean, f"operation {nth}, {operation}: {result} (continuation {at})"
        balances.extend(run_balances)
    return operations, total(balances)


@pytest.mark.parametrize("is_lasting", [False, True], ids=["once", "from-then-on"])
@pytest.mark.parametrize("fault", [fault for fault in Fault if fault is not Fault.NONE], ids=lambda fault: fault.name)
def test_the_nth_disk_operation_fails(print_at_end: Callable[[str], None], fault: Fault, *, is_lasting: bool) -> None:
    operations, balance_of_run = for_every_n(lambda nth: run(fault, nth, is_lasting=is_lasting))
    how = "from then on" if is_lasting else "once"
    print_at_end(f"ledger disk-operation-n-fails ({fault}, {how}, n=1..{len(operations)}): {balance_of_run}")
    assert {"create segment", "write segment", "sync segment", "sync directory", "write cursor", "sync cursor",
            "read segment", "delete segment"} <= set(operations)  # fmt: skip
    assert balance_of_run.acknowledged > 0


def test_the_power_fails_at_the_nth_disk_operation(print_at_end: Callable[[str], None]) -> None:
    operations, balance_of_run = for_every_n(lambda nth: run(Fault.NONE, nth))
    print_at_end(f"ledger power-goes-at-disk-operation-n (n=1..{len(operations)}): {balance_of_run}")
    assert balance_of_run.unknown > 0


def test_after_a_failed_sync_the_segment_is_not_trusted_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second fdatasync of the file would succeed without proof: the kernel has dropped the pages."""
    disk = Disk(monkeypatch, tmp_path / "spool")

    async def live(spool: Spool) -> None:
        await spool.append("traces", b"1.")
        operations: list[str] = []
        disk.fail_at(2, Fault.LOST)
        with pytest.raises(SpoolDiskError):
            await spool.append("traces", b"2.")
        assert disk.failed == "sync segment"
        operations = list(disk.operations)
        await spool.append("traces", b"3.")
        assert "create segment" in disk.operations[len(operations) :]

    with Spool(tmp_path / "spool", max_bytes=EVERYTHING) as spool:
        asyncio.run(live(spool))
        assert len(list((tmp_path / "spool").glob("*.segment"))) == 2
        disk.power_cut(tmp_path / "after")
    delivered: dict[str, list[int]] = {}
    with Spool(tmp_path / "after", max_bytes=EVERYTHING) as spool:
        drain(spool, delivered)
        assert spool.stats.quarantined == 0
    assert count(delivered) == {1: 1, 3: 1}
