"""ClickHouse is killed, stopped, shut down or out of disk while spans arrive, until the spool is full."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from spanloop.embedded_clickhouse import EmbeddedClickHouse
from spanloop.embedded_clickhouse.config import ensure_secret

from .support import MEMORY_CAP_BYTES, TINY_SPOOL, Scene, Senders, kill_clickhouse, wait_for

DISK_MIB = 64
RESPONSE_TIMEOUT_S = 2


def wait_for_a_full_spool(senders: Senders, refusals: int = 20) -> None:
    """Wait until the collector responds only 503."""
    enough = senders.statuses[503] + refusals
    wait_for(lambda: senders.statuses[503] >= enough, "the spool to be full")


def wait_for_acceptance(senders: Senders, requests: int = 20) -> None:
    """Wait until the collector accepts spans again."""
    enough = senders.statuses[200] + requests
    wait_for(lambda: senders.statuses[200] >= enough, "the spool to accept spans")


@pytest.mark.slow
def test_clickhouse_is_unavailable_for_longer_than_the_spool_holds(own_scene: Scene) -> None:
    collector = own_scene.launch(*TINY_SPOOL)
    with Senders(collector.url, own_scene.ledger, pause_s=0.02, is_retrying=True) as senders:
        wait_for_a_full_spool(senders)
        with EmbeddedClickHouse(own_scene.data_dir, memory_cap_bytes=MEMORY_CAP_BYTES):
            wait_for_acceptance(senders)
        wait_for_a_full_spool(senders)
        clickhouse = EmbeddedClickHouse(own_scene.data_dir, memory_cap_bytes=MEMORY_CAP_BYTES)
        clickhouse.start()
        wait_for_acceptance(senders)
    collector.finish()
    balance_of_run = own_scene.settle("clickhouse-away-for-longer-than-the-spool-holds")
    clickhouse.stop()
    assert balance_of_run.refused == 0, "refused requests were sent again and finally accepted"


@pytest.mark.slow
def test_clickhouse_is_killed(own_scene: Scene, times: int) -> None:
    with EmbeddedClickHouse(own_scene.data_dir, memory_cap_bytes=MEMORY_CAP_BYTES) as clickhouse:
        collector = own_scene.launch(*TINY_SPOOL)
        kills = 10 * times
        with Senders(collector.url, own_scene.ledger, is_retrying=True) as senders:
            for at in range(kills):
                wait_for_acceptance(senders, requests=5 + 7 * at % 50)
                kill_clickhouse(clickhouse)
        collector.finish()
        assert own_scene.settle(f"clickhouse-killed-{kills}-times").refused == 0


@pytest.mark.slow
def test_clickhouse_is_stopped_for_longer_than_the_timeouts(own_scene: Scene, times: int) -> None:
    """The collector times out and inserts the block again, while the first INSERT is suspended in the server."""
    with EmbeddedClickHouse(own_scene.data_dir, memory_cap_bytes=MEMORY_CAP_BYTES) as clickhouse:
        collector = own_scene.launch(*TINY_SPOOL, response_timeout_s=RESPONSE_TIMEOUT_S)
        stops = 4 * times
        with Senders(collector.url, own_scene.ledger, pause_s=0.01, is_retrying=True) as senders:
            for _ in range(stops):
                wait_for_acceptance(senders)
                pid = clickhouse.pid
                assert pid is not None
                os.kill(pid, signal.SIGSTOP)
                try:
                    wait_for_a_full_spool(senders)
                    time.sleep(3 * RESPONSE_TIMEOUT_S)
                finally:
                    os.kill(pid, signal.SIGCONT)
        collector.finish()
        assert own_scene.settle(f"clickhouse-stopped-{stops}-times").refused == 0


@contextlib.contextmanager
def clickhouse_on_a_small_disk(scene: Scene) -> Generator[Path]:
    """An embedded server whose data are on a tmpfs of its own; gives that folder, as seen from here."""
    folder = scene.data_dir.clickhouse
    folder.mkdir(exist_ok=True)
    ensure_secret(scene.data_dir)
    script = f'mount -t tmpfs -o size={DISK_MIB}m tmpfs "$0" || exit 77; exec "$@"'
    server = [sys.executable, "-m", "spanloop.embedded_clickhouse.server", "--data-dir", str(scene.data_dir.path)]
    namespace = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, str(folder)]
    try:
        process = subprocess.Popen([*namespace, *server, "--memory-cap-bytes", str(MEMORY_CAP_BYTES)])
    except FileNotFoundError:
        pytest.skip("there is no unshare here")
    try:
        wait_for(lambda: process.poll() is not None or scene.data_dir.running("clickhouse") is not None, "ClickHouse")
        if process.poll() == 77:
            pytest.skip("mount namespaces are not allowed here")
        yield Path(f"/proc/{process.pid}/root{folder}")
    finally:
        process.terminate()
        process.wait()


def fill(ballast: Path) -> None:
    """Write until the disk has no free byte."""
    with ballast.open("wb", buffering=0) as file:
        for size_bytes in (1 << 20, 4096, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(b"x" * size_bytes)


@pytest.mark.slow
def test_clickhouse_is_out_of_disk_for_longer_than_the_spool_holds(own_scene: Scene, times: int) -> None:
    with clickhouse_on_a_small_disk(own_scene) as disk:
        collector = own_scene.launch(*TINY_SPOOL)
        # A disk that is full before the tables exist is not tested here.
        wait_for(lambda: collector.health()["store"] == "ok", "the tables")
        ballast = disk / "ballast"
        floods = 3 * times
        with Senders(collector.url, own_scene.ledger, pause_s=0.02, is_retrying=True) as senders:
            for _ in range(floods):
                wait_for_acceptance(senders)
                fill(ballast)
                wait_for(lambda: "space" in str(collector.health()["store"]), "ClickHouse to report the full disk")
                wait_for_a_full_spool(senders)
                time.sleep(2)
                ballast.unlink()
        collector.finish()
        assert own_scene.settle(f"clickhouse-out-of-disk-{floods}-times").refused == 0
