"""The n-th operation on the spool's disk fails, for every n; and the power goes, at every n.

Each run is a small history of appends, blocks and commits. Afterwards the same process goes on, and so do two others:
one that finds the files as they are (after a kill -9), and one that finds only what was synced (after a power cut).
ClickHouse is a dictionary here: the first delivery of a block id counts, as its deduplication has it.
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

from spanloop.semconv.errors import DataDirectoryError
from spanloop.spool import Batch, Spool, SpoolDamageError, SpoolDiskError

from .disk import Disk, Fault
from .ledger import Balance, Ledger, balance, total

SCRATCH: Final = "/dev/shm" if Path("/dev/shm").is_dir() else None
SEGMENT_BYTES: Final = 250
EVERYTHING: Final = 10**6
ROUNDS: Final = 4


class World:
    """One spool, its ledger, and what was delivered of it."""

    def __init__(self, root: Path, disk: Disk, *, is_lasting: bool) -> None:
        self.root = root
        self.disk = disk
        self.directory = root / "spool"
        self.ledger = Ledger(root / "ledger")
        self.delivered: dict[str, list[int]] = {}
        # A disk that refuses to cut back what it may have written keeps it, perhaps: nobody can know.
        self._settle_failed = self.ledger.unknown if is_lasting else self.ledger.refused

    async def live(self, spool: Spool) -> None:
        """Append; drain behind it; be patient with the disk, but not for ever."""
        for number in range(ROUNDS):
            await asyncio.gather(*(self._append(spool) for _ in range(2)))
            if number % 2:
                self._drain_one(spool)

    async def _append(self, spool: Spool) -> None:
        ids = self.ledger.new_ids(1)
        self.ledger.attempted(ids)
        try:
            await spool.append_all([("traces", b"%d" % each + b"." * 40) for each in ids])
        except SpoolDiskError:
            self._settle_failed(ids)
        else:
            self.ledger.acknowledged(ids)

    def _drain_one(self, spool: Spool) -> None:
        batch: Batch | None = None
        for _ in range(2):  # a disk that fails once is asked again
            try:
                batch = batch or spool.read(EVERYTHING)
                if batch is not None:
                    deliver(self.delivered, batch)
                    spool.commit(batch)
            except (OSError, SpoolDamageError):
                continue
            return

    def images(self, name: str) -> tuple[Path, Path]:
        """The most and the least that another process may find now."""
        most, least = self.root / f"{name}-most", self.root / f"{name}-least"
        most.mkdir()
        for path in self.directory.iterdir():
            if path.is_file():
                shutil.copyfile(path, most / path.name)
        self.disk.power_cut(least)
        return most, least


class Snapshot(NamedTuple):
    """What there was at one moment."""

    ledger: Path
    delivered: dict[str, list[int]]
    images: tuple[Path, Path]

    def balances(self) -> Iterator[Balance]:
        """Go on from each image."""
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
    """One history with one fault; the operation that it hit, and the ledgers of all that went on from it."""
    with tempfile.TemporaryDirectory(dir=SCRATCH) as folder, pytest.MonkeyPatch.context() as patch:
        root = Path(folder)
        disk = Disk(patch, root / "spool")
        world = World(root, disk, is_lasting=is_lasting)
        snapshots: list[Snapshot] = []

        def keep(name: str) -> None:
            ledger = world.ledger.snapshot(root / f"{name}-ledger")
            snapshots.append(Snapshot(ledger, dict(world.delivered), world.images(name)))

        disk.fail_at(nth, fault, is_lasting=is_lasting, at_nth=lambda: keep("then"))
        try:
            spool = Spool(world.directory, max_bytes=EVERYTHING, segment_bytes=SEGMENT_BYTES)
        except DataDirectoryError:  # it could not be opened: the next attempt can
            disk.mend()
            spool = Spool(world.directory, max_bytes=EVERYTHING, segment_bytes=SEGMENT_BYTES)
        asyncio.run(world.live(spool))
        keep("now")
        disk.mend()
        drain(spool, world.delivered)
        assert spool.stats.records == 0
        spool.close()
        world.ledger.close()
        balances = [balance(world.ledger.path, count(world.delivered))]
        for snapshot in snapshots:
            balances.extend(snapshot.balances())
        return disk.failed, balances


def for_every_n(one: Callable[[int], tuple[str, list[Balance]]]) -> tuple[list[str], Balance]:
    """Until there is no n-th operation any more; the operations, and all ledgers together."""
    operations: list[str] = []
    balances: list[Balance] = []
    for nth in itertools.count(1):
        operation, found = one(nth)
        if not operation:
            break
        operations.append(operation)
        for at, each in enumerate(found):
            assert each.is_clean, f"operation {nth}, {operation}: {each} (the image {at} of what went on from it)"
        balances.extend(found)
    return operations, total(balances)


@pytest.mark.parametrize("is_lasting", [False, True], ids=["once", "from-then-on"])
@pytest.mark.parametrize("fault", [fault for fault in Fault if fault is not Fault.NONE], ids=lambda each: each.name)
def test_the_nth_disk_operation_fails(say: Callable[[str], None], fault: Fault, *, is_lasting: bool) -> None:
    operations, counted = for_every_n(lambda nth: run(fault, nth, is_lasting=is_lasting))
    how = "from then on" if is_lasting else "once"
    say(f"ledger disk-operation-n-fails ({fault}, {how}, n=1..{len(operations)}): {counted}")
    assert {"create segment", "write segment", "sync segment", "sync directory", "write cursor", "sync cursor",
            "read segment", "delete segment"} <= set(operations)  # fmt: skip
    assert counted.acknowledged > 0


def test_the_power_fails_at_the_nth_disk_operation(say: Callable[[str], None]) -> None:
    operations, counted = for_every_n(lambda nth: run(Fault.NONE, nth))
    say(f"ledger power-goes-at-disk-operation-n (n=1..{len(operations)}): {counted}")
    assert counted.unknown > 0


def test_after_a_failed_sync_the_segment_is_not_trusted_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second fdatasync of the same file would succeed, and prove nothing: the kernel has dropped the pages."""
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
