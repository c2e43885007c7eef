"""Damaged files: intact records are delivered, all other bytes are quarantined and counted."""

import errno
import os
import random
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from spanloop.spool.frames import HEADER_BYTES, MARKER_BYTES, Record, SpoolDamageError, encode_frame, frame_bytes
from spanloop.spool.journal import Batch, Journal

# Thousands of little spools: in memory, where an fsync is free, if the machine has such a place.
SCRATCH = "/dev/shm" if Path("/dev/shm").is_dir() else None
BODIES = (b"first", b"", b"third record, a little longer", b"4")


def fill(directory: Path, bodies: Sequence[bytes], *, segment_bytes: int = 10_000) -> None:
    journal = Journal(directory, segment_bytes=segment_bytes)
    for body in bodies:
        journal.write([("traces", body, time.time_ns())])
    journal.close()


def drain(directory: Path) -> tuple[list[bytes], int]:
    """(bodies, quarantined) of a spool that is opened and drained."""
    journal = Journal(directory, segment_bytes=10_000)
    bodies: list[bytes] = []
    while (batch := journal.read(1000)) is not None:
        bodies += [record.body for record in batch.records]
        journal.commit(batch)
    quarantined = journal.stats.quarantined
    journal.close()
    return bodies, quarantined


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("intact") / "spool"
    fill(directory, BODIES)
    return directory


def the_segment(directory: Path) -> Path:
    (path,) = directory.glob("*.segment")
    return path


def frame_ends() -> list[int]:
    ends = [0]
    for body in BODIES:
        ends.append(ends[-1] + frame_bytes("traces", body))
    return ends


def frame_range(content: bytes | bytearray, body: bytes) -> range | None:
    """Find the bytes of the frame with ``body``; None when ``content`` has none.

    The search includes the kind: an empty record's body and the next frame's marker may together contain ``body``.
    """
    at = content.find(b"traces" + body)
    return None if at < 0 else range(at - HEADER_BYTES, at + len("traces") + len(body))


def test_a_tail_of_zeros_is_quarantined(intact: Path, tmp_path: Path) -> None:
    """Some file systems leave this after a power cut: the length is written, the content is not."""
    directory = tmp_path / "spool"
    shutil.copytree(intact, directory)
    with the_segment(directory).open("ab") as file:
        file.write(bytes(5000))
    assert drain(directory) == (list(BODIES), 1)


def test_damaged_bytes_are_quarantined(intact: Path, tmp_path: Path) -> None:
    directory = tmp_path / "spool"
    shutil.copytree(intact, directory)
    segment = the_segment(directory)
    content = bytearray(segment.read_bytes())
    content[HEADER_BYTES + len("traces")] ^= 0xFF
    segment.write_bytes(content)
    drain(directory)
    (kept,) = (directory / "quarantine").iterdir()
    assert kept.read_bytes() == content[: frame_ends()[1]]
    assert drain(directory) == ([], 1), "the count outlives the restart"


def test_a_body_that_looks_like_a_frame_is_not_taken_for_one(intact: Path, tmp_path: Path) -> None:
    directory = tmp_path / "spool"
    frames = the_segment(intact).read_bytes()
    fill(directory, [b"before", frames, b"after"])
    segment = the_segment(directory)
    content = bytearray(segment.read_bytes())
    content[frame_bytes("traces", b"before")] ^= 1
    segment.write_bytes(content)
    assert drain(directory) == ([b"before", b"after"], 1)


def test_a_flip_while_the_spool_is_open_costs_one_record(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "spool", segment_bytes=10_000)
    for body in BODIES:
        journal.write([("traces", body, time.time_ns())])
    segment = the_segment(tmp_path / "spool")
    content = bytearray(segment.read_bytes())
    content[frame_ends()[3] - 1] ^= 1
    segment.write_bytes(content)
    batch = journal.read(1000)
    assert batch is not None
    assert [record.body for record in batch.records] == [BODIES[0], BODIES[1], BODIES[3]]
    journal.commit(batch)
    journal.write([("traces", b"next", time.time_ns())])
    batch = journal.read(1000)
    assert batch is not None
    assert [record.body for record in batch.records] == [b"next"]
    assert journal.stats.quarantined == 1
    journal.close()


def test_a_flip_after_a_block_was_read_costs_one_record(tmp_path: Path) -> None:
    """Bodies are read when they are sent: what changed since then is not sent, and the block is read again."""
    journal = Journal(tmp_path / "spool", segment_bytes=10_000)
    for body in BODIES:
        journal.write([("traces", body, time.time_ns())])
    current = journal.read(1000)
    assert current is not None
    assert [record.body for record in current.records] == list(BODIES)
    segment = the_segment(tmp_path / "spool")
    with segment.open("r+b") as file:
        file.seek(frame_ends()[3] - 1)
        file.write(b"\xff")
    with pytest.raises(SpoolDamageError, match="record 3 "):
        assert current.records[2].body
    again = journal.read(1000)
    assert again is not None
    assert again.block_id == current.block_id
    assert [record.body for record in again.records] == [BODIES[0], BODIES[1], BODIES[3]]
    assert journal.stats.quarantined == 1
    journal.commit(again)
    assert journal.stats.records == 0
    journal.close()
    with pytest.raises(SpoolDamageError):
        assert again.records[0].body


def test_a_page_that_the_disk_cannot_read_loses_only_its_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies = [b"%03d" % at + b"x" * 500 for at in range(100)]
    fill(tmp_path / "spool", bodies, segment_bytes=10**6)
    bad_page = range(5 * 4096, 6 * 4096)
    real_pread = os.pread

    def pread(fd: int, size_bytes: int, offset: int) -> bytes:
        if offset < bad_page.stop and offset + size_bytes > bad_page.start:
            raise OSError(errno.EIO, "Input/output error")
        return real_pread(fd, size_bytes, offset)

    monkeypatch.setattr(os, "pread", pread)
    bodies_read, quarantined = drain(tmp_path / "spool")
    size_bytes = frame_bytes("traces", bodies[0])
    hit = {at for at in range(100) if at * size_bytes < bad_page.stop and (at + 1) * size_bytes > bad_page.start}
    assert bodies_read == [body for at, body in enumerate(bodies) if at not in hit]
    assert 1 <= quarantined <= len(hit)


def test_a_spool_of_nothing_but_damage_is_empty(tmp_path: Path) -> None:
    fill(tmp_path / "spool", [b"only"])
    the_segment(tmp_path / "spool").write_bytes(b"\xff" * 100)
    assert drain(tmp_path / "spool") == ([], 1)


@pytest.mark.parametrize("slot", [0, 1])
def test_one_lost_cursor_slot_never_loses_a_record(tmp_path: Path, slot: int) -> None:
    directory = tmp_path / "spool"
    fill(directory, BODIES)
    journal = Journal(directory, segment_bytes=10_000)
    first = journal.read(1)
    assert first is not None
    journal.commit(first)
    current = journal.read(1000)
    assert current is not None
    journal.close()
    with (directory / "cursor").open("r+b") as file:
        file.seek(slot * 4096 + 20)
        file.write(b"\xff\xff")
    bodies, _ = drain(directory)
    assert bodies[-3:] == list(BODIES[1:])


def test_a_lost_cursor_delivers_everything_again_and_is_counted(tmp_path: Path) -> None:
    directory = tmp_path / "spool"
    fill(directory, BODIES)
    (directory / "cursor").write_bytes(b"\x00" * 8192)
    assert drain(directory) == (list(BODIES), 1)


def test_segments_that_were_deleted_by_the_user_do_not_block_the_spool(tmp_path: Path) -> None:
    directory = tmp_path / "spool"
    fill(directory, BODIES)
    journal = Journal(directory, segment_bytes=10_000)
    assert journal.read(1000) is not None
    journal.close()
    the_segment(directory).unlink()
    journal = Journal(directory, segment_bytes=10_000)
    batch = journal.read(1000)
    assert batch is not None
    assert batch.records == ()
    journal.commit(batch)
    journal.write([("traces", b"new", time.time_ns())])
    batch = journal.read(1000)
    assert batch is not None
    assert [record.body for record in batch.records] == [b"new"]
    journal.close()


def test_numbers_of_damaged_records_are_not_reused(tmp_path: Path) -> None:
    """A disk that fails for some time gives the records back: two with one number would be one for the cursor."""
    directory = tmp_path / "spool"
    journal = Journal(directory, segment_bytes=1)
    journal.write([("traces", b"intact", time.time_ns())])
    journal.write([("traces", b"lost", time.time_ns()), ("traces", b"lost too", time.time_ns())])
    journal.close()
    damaged = sorted(directory.glob("*.segment"))[1]
    damaged.write_bytes(bytes(damaged.stat().st_size))
    journal = Journal(directory, segment_bytes=1)
    journal.write([("traces", b"next", time.time_ns())])
    batch = journal.read(1000)
    assert batch is not None
    assert [record.body for record in batch.records] == [b"intact", b"next"]
    assert batch.records[0].seq == 1
    assert batch.records[1].seq > 3
    journal.close()


@pytest.mark.parametrize("size_bytes", [0, 100], ids=["empty", "zeros"])
def test_records_after_a_segment_without_records_are_counted(tmp_path: Path, size_bytes: int) -> None:
    """Its name, which orders the segments, has a number too."""
    directory = tmp_path / "spool"
    fill(directory, [b"first"])
    (directory / f"{2:020d}-{'f' * 16}.segment").write_bytes(bytes(size_bytes))
    journal = Journal(directory, segment_bytes=10_000)
    for body in (b"second", b"third", b"fourth"):
        journal.write([("traces", body, time.time_ns())])
    copied = tmp_path / "copied"
    shutil.copytree(directory, copied)
    journal.close()
    journal = Journal(copied, segment_bytes=10_000)
    assert journal.stats.records >= 4
    journal.close()
    assert drain(copied)[0] == [b"first", b"second", b"third", b"fourth"]


def test_the_search_for_a_frame_skips_a_body_and_a_marker_that_look_like_its_body() -> None:
    frames = [
        b"".join(encode_frame(b"1" * MARKER_BYTES, Record("traces", b"%06d" % number, number + 1, 0)))
        for number in range(2)
    ]
    content = b"".join(frames)
    assert content.index(b"000001") < len(frames[0])
    assert frame_range(content, b"000001") == range(len(frames[0]), len(content))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(garbage=st.binary(max_size=300), bodies=st.lists(st.binary(max_size=50), max_size=5))
def test_any_garbage_at_the_end_is_counted_once(garbage: bytes, bodies: list[bytes]) -> None:
    with tempfile.TemporaryDirectory(dir=SCRATCH) as folder:
        directory = Path(folder) / "spool"
        fill(directory, [*bodies, b"last"])
        with the_segment(directory).open("ab") as file:
            file.write(garbage)
        assert drain(directory) == ([*bodies, b"last"], 1 if garbage else 0)


class SpoolMachine(RuleBasedStateMachine):
    """Any sequence of append, read, commit, crash, torn write and flip, against a list."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="spool-machine-", dir=SCRATCH))
        self.waiting: list[bytes] = []  # acknowledged, not committed, not damaged
        self.current: Batch | None = None
        self.current_bodies: set[bytes] = set()
        self.written = 0
        self.is_damaged = False
        self.patch = pytest.MonkeyPatch()

    @initialize(seed=st.integers(0, 2**32 - 1))
    def open(self, seed: int) -> None:
        """Take the markers of segments from a seed, so that the same history has the same files."""
        self.patch.setattr(os, "urandom", random.Random(seed).randbytes)
        self.directory = self.root / "0"
        self.journal = Journal(self.directory, segment_bytes=300)

    @rule(sizes=st.lists(st.integers(0, 120), min_size=1, max_size=4))
    def append(self, sizes: list[int]) -> None:
        bodies = [b"%06d" % (self.written + at) + b"." * size for at, size in enumerate(sizes)]
        self.written += len(bodies)
        self.journal.write([("traces", body, time.time_ns()) for body in bodies])
        self.waiting += bodies

    @rule(max_bytes=st.integers(1, 500))
    def read(self, max_bytes: int) -> None:
        batch = self.journal.read(max_bytes)
        if batch is None:
            assert not self.waiting
            return
        bodies = [record.body for record in batch.records]
        assert bodies == self.waiting[: len(bodies)]
        if self.current is not None:
            assert batch.block_id == self.current.block_id
            assert set(bodies) <= self.current_bodies
            if not self.is_damaged:
                assert batch == self.current
        self.current, self.current_bodies = batch, set(bodies)

    @precondition(lambda self: self.current is not None)
    @rule()
    def commit(self) -> None:
        self.read(500)
        assert self.current is not None
        self.journal.commit(self.current)
        del self.waiting[: len(self.current.records)]
        self.current = None
        self.is_damaged = False

    @rule(torn=st.binary(max_size=60))
    def crash(self, torn: bytes) -> None:
        """Copy the files as they are, perhaps with a torn group at the end, and open the copy."""
        copied = self.copy()
        segments = sorted(copied.glob("*.segment"))
        if segments:
            with segments[-1].open("ab") as file:
                file.write(torn)
        self.journal = Journal(copied, segment_bytes=300)

    @precondition(lambda self: len(self.waiting) > 0)
    @rule(which=st.integers(0, 1000), where=st.floats(0, 1, exclude_max=True))
    def flip(self, which: int, where: float) -> None:
        """Flip a byte of a waiting record, then crash, so that it is not in memory."""
        body = self.waiting[which % len(self.waiting)]
        copied = self.copy()
        for segment in copied.glob("*.segment"):
            content = bytearray(segment.read_bytes())
            span = frame_range(content, body)
            if span is not None:
                content[span.start + int(where * len(span))] ^= 0x10
                segment.write_bytes(content)
                break
        else:
            raise AssertionError(f"{body!r} is waiting but in no segment")
        self.waiting.remove(body)
        self.is_damaged = True
        self.journal = Journal(copied, segment_bytes=300)

    def copy(self) -> Path:
        """The files as a crash leaves them, in a new place."""
        copied = self.root / str(int(self.directory.name) + 1)
        shutil.copytree(self.directory, copied)
        self.journal.close()
        shutil.rmtree(self.directory)
        self.directory = copied
        return copied

    @invariant()
    def counts_agree(self) -> None:
        if hasattr(self, "journal"):
            assert self.journal.stats.records >= len(self.waiting)
        if hasattr(self, "journal") and not self.waiting:
            assert self.journal.stats.records == 0 or self.current is not None or self.is_damaged

    def teardown(self) -> None:
        self.patch.undo()
        if hasattr(self, "journal"):
            bodies_read: list[bytes] = []
            while (batch := self.journal.read(10_000)) is not None:
                bodies_read += [record.body for record in batch.records]
                self.journal.commit(batch)
            assert bodies_read == self.waiting
            assert self.journal.stats.records == 0
            self.journal.close()
        shutil.rmtree(self.root)


SpoolMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
test_any_history = SpoolMachine.TestCase
