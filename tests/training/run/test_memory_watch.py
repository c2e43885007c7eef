import os
import subprocess
import sys

import pytest

from spanloop.training.run import verl_process
from spanloop.training.run.verl_process import MemoryUse, MemoryWatch

MEBIBYTE = 2**20


def test_the_most_that_was_used_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verl_process, "_EVERY_S", 0.0)
    code = "data = bytearray(64 * 2**20); print(flush=True); input(); del data; print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        watch = MemoryWatch(lambda: [process.pid, 2**22 + 1])
        assert MemoryWatch(list).use is None
        process.stdout.readline()
        watch.look()
        first = watch.use
        process.stdin.write(b"\n")
        process.stdin.flush()
        process.stdout.readline()
        watch.look()
        second = watch.use
        process.kill()
    assert first is not None
    assert second is not None
    assert first.used_bytes > 64 * MEBIBYTE
    assert second.used_bytes == first.used_bytes
    assert 0 < second.available_bytes <= first.available_bytes <= first.limit_bytes


def test_it_does_not_look_more_often_than_needed() -> None:
    looks: list[int] = []

    def pids() -> list[int]:
        looks.append(1)
        return [os.getpid()]

    watch = MemoryWatch(pids)
    for _ in range(50):
        watch.look()
    assert len(looks) == 1


def test_a_sentence_for_a_person() -> None:
    assert str(MemoryUse(7_400_000_000, 300_000_000, 23_000_000_000)) == (
        "Its processes used up to 7.4 GB of 23.0 GB; the machine had 0.3 GB left at the least."
    )
