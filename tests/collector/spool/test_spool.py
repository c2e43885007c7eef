"""The spool's guarantees to the server that appends and to the writer that drains."""
# pyright: reportPrivateUsage=false

import asyncio
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from spanloop.foundation.errors import AlreadyRunningError, DataDirectoryError
from spanloop.spool import Batch, Spool, SpoolFullError

MIB = 2**20


def drain(spool: Spool, max_bytes: int = MIB) -> list[tuple[str, bytes]]:
    records: list[tuple[str, bytes]] = []
    while (batch := spool.read(max_bytes)) is not None:
        records += [(record.kind, record.body) for record in batch.records]
        spool.commit(batch)
    return records


def read_block(spool: Spool, max_bytes: int = MIB) -> Batch:
    batch = spool.read(max_bytes)
    assert batch is not None
    return batch


async def test_records_are_read_in_order_with_their_kind(tmp_path: Path) -> None:
    items = [("traces", b"a"), ("logs", b""), ("généré", bytes(range(256)) * 100)]
    with Spool(tmp_path / "spool", max_bytes=MIB) as spool:
        for kind, body in items:
            await spool.append(kind, body)
        assert drain(spool) == items
        assert spool.read(MIB) is None


async def test_an_appended_record_survives_without_any_close(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", max_bytes=MIB)
    await spool.append("traces", b"kept")
    copied = copy_as_a_crash_leaves_it(tmp_path / "spool")
    spool.close()
    with Spool(copied, max_bytes=MIB) as reopened:
        assert drain(reopened) == [("traces", b"kept")]


async def test_many_waiting_appends_share_few_fsyncs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    syncs = 0
    real_fdatasync = os.fdatasync

    def counting_fdatasync(fd: int) -> None:
        nonlocal syncs
        syncs += 1
        real_fdatasync(fd)

    with Spool(tmp_path / "spool", max_bytes=MIB) as spool:
        monkeypatch.setattr(os, "fdatasync", counting_fdatasync)
        await asyncio.gather(*(spool.append("traces", b"%d" % at) for at in range(500)))
        assert 1 <= syncs <= 5
        assert len(drain(spool)) == 500


async def test_a_read_block_stays_the_same_until_it_is_committed(tmp_path: Path) -> None:
    with Spool(tmp_path / "spool", max_bytes=MIB) as spool:
        await spool.append("traces", b"1" * 10)
        await spool.append("traces", b"2" * 10)
        first = read_block(spool, 15)
        await spool.append("traces", b"3" * 10)
        assert read_block(spool, 1000) == first
        assert [record.body for record in first.records] == [b"1" * 10]
        spool.commit(first)
        second = read_block(spool, 1000)
        assert second.block_id != first.block_id
        assert [record.body for record in second.records] == [b"2" * 10, b"3" * 10]


async def test_the_current_block_is_the_same_block_after_a_crash(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", max_bytes=MIB, segment_bytes=200)
    for at in range(20):
        await spool.append("traces", b"%d" % at * 10)
    spool.commit(read_block(spool, 55))
    current = read_block(spool, 100)
    await spool.append("traces", b"newer")
    copied = copy_as_a_crash_leaves_it(tmp_path / "spool")
    spool.close()
    with Spool(copied, max_bytes=MIB) as reopened:
        assert read_block(reopened, 10_000) == current
        reopened.commit(current)
        assert read_block(reopened, 10_000).records[0].seq == current.records[-1].seq + 1


async def test_a_committed_block_never_comes_back(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", max_bytes=MIB)
    await spool.append("traces", b"gone")
    await spool.append("traces", b"here")
    spool.commit(read_block(spool, 4))
    copied = copy_as_a_crash_leaves_it(tmp_path / "spool")
    spool.close()
    with Spool(copied, max_bytes=MIB) as reopened:
        assert drain(reopened) == [("traces", b"here")]


async def test_only_the_current_block_can_be_committed(tmp_path: Path) -> None:
    with Spool(tmp_path / "spool", max_bytes=MIB) as spool:
        await spool.append("traces", b"x")
        batch = read_block(spool)
        spool.commit(batch)
        with pytest.raises(ValueError, match=batch.block_id):
            spool.commit(batch)


async def test_a_full_spool_rejects_appends_until_a_commit(tmp_path: Path) -> None:
    with Spool(tmp_path / "spool", max_bytes=10_000) as spool:
        while spool.stats.bytes <= 9000:
            await spool.append("traces", b"x" * 1000)
        with pytest.raises(SpoolFullError, match="of 10000 bytes wait") as full:
            await spool.append("traces", b"x" * 1000)
        assert full.value.next_step
        stored = spool.stats.records
        assert len(drain(spool)) == stored
        await spool.append("traces", b"x" * 1000)
        assert spool.stats.records == 1


async def test_appends_that_wait_together_cannot_overfill(tmp_path: Path) -> None:
    with Spool(tmp_path / "spool", max_bytes=10_000) as spool:
        outcomes = await asyncio.gather(
            *(spool.append("traces", b"x" * 1000) for _ in range(50)), return_exceptions=True
        )
        stored = sum(outcome is None for outcome in outcomes)
        assert sum(isinstance(outcome, SpoolFullError) for outcome in outcomes) == 50 - stored
        assert spool.stats.bytes <= 10_000
        assert len(drain(spool)) == stored


async def test_a_drained_spool_frees_its_disk_space(tmp_path: Path) -> None:
    with Spool(tmp_path / "spool", max_bytes=MIB, segment_bytes=1000) as spool:
        for _ in range(30):
            await spool.append("traces", b"x" * 300)
            drain(spool)
        assert len(list((tmp_path / "spool").glob("*.segment"))) <= 1
    assert not list((tmp_path / "spool").glob("*.segment"))


async def test_stats_count_pending_records_and_their_age(tmp_path: Path) -> None:
    with Spool(tmp_path / "spool", max_bytes=MIB) as spool:
        assert spool.stats == (0, 0, 0.0, 0)
        await spool.append("traces", b"x" * 100)
        await spool.append("traces", b"x" * 100)
        await asyncio.sleep(0.05)
        stats = spool.stats
        assert (stats.records, stats.quarantined) == (2, 0)
        assert 200 < stats.bytes < 400
        assert 0.04 < stats.oldest_age_s < 60
        drain(spool)
        assert spool.stats == (0, 0, 0.0, 0)


async def test_wait_wakes_on_an_append_and_on_records_of_an_earlier_process(tmp_path: Path) -> None:
    with Spool(tmp_path / "spool", max_bytes=MIB) as spool:
        assert not await spool.wait(0.01)
        waiting = asyncio.create_task(spool.wait(60))
        await spool.append("traces", b"x")
        assert await waiting
        assert await spool.wait(0)
    with Spool(tmp_path / "spool", max_bytes=MIB) as spool:
        assert await spool.wait(0.01)
        drain(spool)
        spool.rearm()
        assert not await spool.wait(0.01)


async def test_a_second_process_is_refused(tmp_path: Path) -> None:
    with Spool(tmp_path / "spool", max_bytes=MIB), pytest.raises(AlreadyRunningError, match="in use"):
        Spool(tmp_path / "spool", max_bytes=MIB)
    Spool(tmp_path / "spool", max_bytes=MIB).close()


async def test_a_cancelled_append_does_not_affect_other_appends(tmp_path: Path) -> None:
    with Spool(tmp_path / "spool", max_bytes=MIB) as spool:
        cancelled = asyncio.create_task(spool.append("traces", b"cancelled"))
        kept = asyncio.create_task(spool.append("traces", b"kept"))
        await asyncio.sleep(0)
        cancelled.cancel()
        await kept
        assert ("traces", b"kept") in drain(spool)


async def test_a_failing_cursor_leaves_the_current_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Spool(tmp_path / "spool", max_bytes=MIB) as spool:
        await spool.append("traces", b"x")

        def failing(fd: int) -> None:
            raise OSError(5, f"Input/output error on {fd}")

        with monkeypatch.context() as patch:
            patch.setattr(os, "fdatasync", failing)
            with pytest.raises(OSError, match="Input/output"):
                spool.read(MIB)
        batch = read_block(spool)
        with monkeypatch.context() as patch:
            patch.setattr(os, "fdatasync", failing)
            with pytest.raises(OSError, match="Input/output"):
                spool.commit(batch)
        assert read_block(spool) == batch
        spool.commit(batch)
        assert spool.read(MIB) is None


def test_a_full_disk_is_reported_by_the_constructor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(_fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fdatasync", failing)
    with pytest.raises(DataDirectoryError, match="No space is left"):
        Spool(tmp_path / "spool", max_bytes=MIB)


LIMITED_DISK = """
import asyncio, resource, sys
from pathlib import Path
from spanloop.spool import Spool, SpoolDiskError

async def main():
    spool = Spool(Path(sys.argv[1]), max_bytes=2**30)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
    refused = 0
    for at in range(40):
        try:
            await spool.append("traces", b"%03d" % at + b"x" * 3000)
        except SpoolDiskError as error:
            refused += 1
        else:
            print(at, flush=True)
    print("refused", refused, flush=True)

asyncio.run(main())
"""


def test_a_real_limit_of_the_file_system_costs_no_acknowledged_record(tmp_path: Path) -> None:
    """The kernel refuses to grow a segment over the process's file size limit; the spool goes on in a fresh one."""
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[1] == resource.RLIM_INFINITY
    child = subprocess.run(
        [sys.executable, "-c", LIMITED_DISK, str(tmp_path / "spool")], capture_output=True, text=True, check=True
    )
    *acknowledged, last = child.stdout.splitlines()
    assert int(last.removeprefix("refused ")) > 0
    with Spool(tmp_path / "spool", max_bytes=2**30) as spool:
        assert [int(body[:3]) for _, body in drain(spool)] == [int(line) for line in acknowledged]


APPENDER = """
import asyncio, sys
from pathlib import Path
from spanloop.spool import Spool

async def main():
    spool = Spool(Path(sys.argv[1]), max_bytes=2**30, segment_bytes=100_000)
    async def one(at):
        await spool.append("traces", b"%d" % at)
        sys.stdout.write(f"{at}\\n"); sys.stdout.flush()
    at = 0
    while True:
        await asyncio.gather(*(one(at + i) for i in range(20)))
        at += 20

asyncio.run(main())
"""


def test_kill_9_loses_no_acknowledged_record(tmp_path: Path) -> None:
    directory = tmp_path / "spool"
    for _ in range(3):
        child = subprocess.Popen([sys.executable, "-c", APPENDER, str(directory)], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        acknowledged = [int(child.stdout.readline()) for _ in range(300)]
        child.kill()
        acknowledged += [int(line) for line in child.stdout.read().splitlines(keepends=True) if line.endswith("\n")]
        child.stdout.close()
        child.wait()
        with Spool(directory, max_bytes=2**30) as spool:
            stored = [int(body) for _, body in drain(spool)]
        assert len(stored) == len(set(stored))
        assert set(acknowledged) <= set(stored)


def copy_as_a_crash_leaves_it(directory: Path) -> Path:
    """What another process would find: the files as they are now, without their open descriptors and locks."""
    copied = directory.with_name(directory.name + "-after-crash")
    copied.mkdir()
    for path in directory.iterdir():
        if path.is_file():
            (copied / path.name).write_bytes(path.read_bytes())
    return copied


async def test_a_wait_that_is_cancelled_while_a_record_arrives_is_cancelled(tmp_path: Path) -> None:
    for steps in range(4):
        with Spool(tmp_path / f"spool {steps}", max_bytes=MIB) as spool:
            waiting = asyncio.create_task(spool.wait(60))
            await asyncio.sleep(0.01)
            spool._readable.set()
            for _ in range(steps):
                await asyncio.sleep(0)
            is_accepted = waiting.cancel()
            await asyncio.wait({waiting})
            assert waiting.cancelled() == is_accepted
