"""Ports on which a job's first rank listens."""

import socket
from pathlib import Path

import pytest

from spanloop.training.verl_plugin import master_port

LOWEST_OUTGOING = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])


@pytest.mark.skipif(LOWEST_OUTGOING <= 20_000, reason="outgoing connections may have every port here")
def test_no_outgoing_connection_takes_the_port_of_a_job() -> None:
    chosen = [master_port.free_port() for _ in range(20)]
    assert 20_000 <= min(chosen) <= max(chosen) < LOWEST_OUTGOING
    assert len(set(chosen)) > 1  # jobs that start together


@pytest.mark.parametrize("outgoing", ["20001 60999", "1024 65535", "nonsense"])
def test_a_taken_port_is_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, outgoing: str) -> None:
    """The only port apart from outgoing connections is taken, or there is none: any free port is chosen."""
    (tmp_path / "range").write_text(outgoing)
    monkeypatch.setattr(master_port, "_OUTGOING", tmp_path / "range")
    with socket.socket() as taken:
        taken.bind(("", 20_000))
        taken.listen()
        assert master_port.free_port() > 20_000
