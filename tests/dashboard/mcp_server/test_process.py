"""``spanloop serve mcp`` as a process: TLS beyond this machine with a key, and a clean end."""

import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from spanloop.foundation.keys.api_keys import KeyRing, Scope
from spanloop.foundation.keys.tls import TlsFiles
from spanloop.foundation.paths import DataDir

from ...foundation.keys.certificates import make_certificate
from ..dashboard.dashboard_seeding import Seeded
from .conftest import ask

TIMEOUT_S = 120


def test_without_keys_it_refuses_to_listen_beyond_this_machine(data_dir: DataDir) -> None:
    command = [sys.executable, "-m", "spanloop.mcp_server", "--host=0.0.0.0", f"--data-dir={data_dir.path}"]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert refused.returncode == 2
    assert "spanloop keys create NAME --scope ask" in refused.stderr


@contextmanager
def serving(data_dir: DataDir, files: TlsFiles, log: Path) -> Generator[tuple[subprocess.Popen[bytes], str]]:
    """Run a server with a certificate beyond this machine; yield its process and its URL."""
    command = [sys.executable, "-m", "spanloop.mcp_server", "--host=0.0.0.0", "--port=0", f"--data-dir={data_dir.path}"]
    command += [f"--certificate-file={files.certificate}", f"--private-key-file={files.private_key}"]
    with log.open("w") as lines, subprocess.Popen(command, stderr=lines, stdout=lines) as process:
        try:
            give_up_s = time.monotonic() + TIMEOUT_S
            while (running := data_dir.running("mcp")) is None:
                assert process.poll() is None
                assert time.monotonic() < give_up_s
                time.sleep(0.02)
            yield process, running.url
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_it_speaks_tls_with_a_key_and_ends_with_status_0(
    number: signal.Signals, seeded: Seeded, data_dir: DataDir, tmp_path: Path
) -> None:
    secret = KeyRing(data_dir).create("helper", [Scope.ASK]).secret
    files = make_certificate(tmp_path)
    trusted = ssl.create_default_context(cafile=str(files.certificate))
    headers = {"Authorization": f"Bearer {secret}"}
    with serving(data_dir, files, tmp_path / "log") as (process, url):
        assert url.startswith("https://127.0.0.1:")
        async with (
            httpx2.AsyncClient(headers=headers, verify=trusted, timeout=TIMEOUT_S) as http,
            Client(streamable_http_client(f"{url}/mcp", http_client=http)) as client,
        ):
            assert await ask(client, "count", of="episodes") == f"{seeded.episodes} episodes match."
        async with httpx2.AsyncClient(verify=trusted) as http:
            health = (await http.get(f"{url}/healthz")).json()
        assert (health["status"], health["role"]) == ("ok", "mcp")
        process.send_signal(number)
        assert process.wait(TIMEOUT_S) == 0
    assert data_dir.running("mcp") is None
    text = (tmp_path / "log").read_text()
    assert secret not in text
    assert "Traceback" not in text
