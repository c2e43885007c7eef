"""Hosts of the tests reach each other by name and address, and share what they mount."""

import subprocess
from pathlib import Path

import pytest

from .network import Network, kill_child, missing

pytestmark = pytest.mark.skipif(bool(reason := missing()), reason=reason)


def test_hosts_share_a_network_and_nothing_else(tmp_path: Path) -> None:
    with Network(tmp_path / "hosts", ["one", "two", "alone"], sharing=["one", "two"]) as network:
        assert network["one"].run(["hostname"]).strip() == "one"
        network["one"].run(["bash", "-c", "echo here > mine; echo here > /tmp/mine; echo here > /srv/shared/ours"])
        seen = network["two"].run(["bash", "-c", "ls mine /tmp/mine 2> /dev/null; cat /srv/shared/ours"])
        assert seen.split() == ["here"]
        assert network["alone"].run(["ls", "/srv/shared"]) == ""
        server = network["two"].popen(["python3", "-m", "http.server", "8000"], output=subprocess.DEVNULL)
        fetch = "until curl --silent http://{}:8000/; do sleep 0.1; done"
        network["one"].run(["bash", "-c", fetch.format("two")], timeout_s=20)
        with network.entered("alone"):
            address = network["two"].address
            subprocess.run(["bash", "-c", fetch.format(address)], timeout=20, check=True, capture_output=True)
        kill_child(server)
        assert server.wait() in {-9, 137}
