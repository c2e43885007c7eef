"""Collector and gateway with a certificate, as processes: HTTPS and gRPC over TLS, and nothing without it."""
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

import ssl
from pathlib import Path

import grpc
import httpx
import pytest

from spanloop.foundation.keys.api_keys import KeyRing, Scope
from spanloop.foundation.keys.tls import TlsFiles
from spanloop.foundation.paths import DataDir

from ...collector.collector.collectors import PROTOBUF, TIMEOUT_S, CollectorProcess, trace_request
from ...collector.collector.test_authentication import TRACES
from ...gateway.support import Process
from .certificates import make_certificate

pytestmark = pytest.mark.slow


@pytest.fixture
def tls(tmp_path: Path, data_dir: DataDir) -> TlsFiles:
    """A certificate that ``spanloop.toml`` in the data directory names."""
    files = make_certificate(tmp_path)
    text = f'[tls]\ncertificate_file = "{files.certificate}"\nprivate_key_file = "{files.private_key}"\n'
    (data_dir.path / "spanloop.toml").write_text(text)
    return files


def client(tls: TlsFiles) -> httpx.Client:
    return httpx.Client(verify=ssl.create_default_context(cafile=str(tls.certificate)), timeout=TIMEOUT_S)


def test_the_collector_speaks_tls_over_http_and_grpc(data_dir: DataDir, tls: TlsFiles) -> None:
    secret = KeyRing(data_dir).create("app", [Scope.INGEST]).secret
    body = trace_request(1).SerializeToString()
    collector = CollectorProcess(data_dir, "", 0, "--host", "0.0.0.0")
    try:
        assert collector.url.startswith("https://127.0.0.1:")
        headers = {"content-type": PROTOBUF, "authorization": f"Bearer {secret}"}
        with client(tls) as http:
            health = http.get(f"{collector.url}/healthz").json()
            assert http.post(f"{collector.url}/v1/traces", content=body, headers=headers).status_code == 200
            assert http.post(f"{collector.url}/v1/traces", content=body).status_code == 401
        with pytest.raises(httpx.TransportError):
            httpx.get(collector.url.replace("https", "http") + "/healthz", timeout=TIMEOUT_S)
        assert str(health["grpc"]).startswith("https://")
        credentials = grpc.ssl_channel_credentials(tls.certificate.read_bytes())
        address = str(health["grpc"]).removeprefix("https://")
        metadata = (("authorization", f"Bearer {secret}"),)
        with grpc.secure_channel(address, credentials) as channel:
            assert channel.unary_unary(TRACES)(body, metadata=metadata, timeout=TIMEOUT_S) == b""
        with grpc.insecure_channel(address) as channel, pytest.raises(grpc.RpcError):
            channel.unary_unary(TRACES)(body, metadata=metadata, timeout=10)
        assert collector.terminate() == 0
    finally:
        collector.kill()
    log = collector.log.read_text()
    assert secret not in log
    assert "without TLS" not in log


def test_the_gateway_speaks_tls(data_dir: DataDir, tls: TlsFiles) -> None:
    gateway = Process(data_dir, "--upstream", "http://127.0.0.1:9")
    try:
        assert gateway.url.startswith("https://127.0.0.1:")
        with client(tls) as http:
            assert http.get(f"{gateway.url}/healthz").status_code == 200
    finally:
        gateway.stop()


def test_beyond_this_machine_plain_http_is_named_in_the_log(data_dir: DataDir) -> None:
    KeyRing(data_dir).create("app", [Scope.INGEST])
    collector = CollectorProcess(data_dir, "", 0, "--host", "0.0.0.0", "--no-grpc")
    assert collector.url.startswith("http://")
    assert collector.terminate() == 0
    assert "listens on 0.0.0.0 without TLS" in collector.log.read_text()
