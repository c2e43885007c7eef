"""Where telemetry goes, and what an app is called."""

import subprocess
from pathlib import Path

import pytest

from spanloop.instrumentation.sending.endpoint import (
    Compression,
    OtlpSettings,
    Signal,
    TlsFiles,
    discover_collector,
    settings_from_environment,
)
from spanloop.instrumentation.setup import default_service_name

from .support import announce


def test_without_variables_the_announced_collector_is_asked_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPANLOOP_DATA_DIR", str(tmp_path))
    settings = settings_from_environment(Signal.TRACES, {})
    assert settings == OtlpSettings(Signal.TRACES)
    assert settings.resolve_url() == "http://127.0.0.1:4318/v1/traces"
    announce(tmp_path, "http://127.0.0.1:9999/")
    assert settings.resolve_url() == "http://127.0.0.1:9999/v1/traces"


def test_a_collector_whose_process_is_gone_is_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPANLOOP_DATA_DIR", str(tmp_path))
    (tmp_path / "run").mkdir()
    with subprocess.Popen(["true"]) as process:
        child = process.pid
    (tmp_path / "run" / "collector.json").write_text(f'{{"url": "http://127.0.0.1:9999", "pid": {child}}}')
    assert discover_collector() == "http://127.0.0.1:4318"


def test_a_configured_collector_gets_the_key_and_another_endpoint_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    announce(tmp_path, "http://127.0.0.1:9999/")
    monkeypatch.setenv("SPANLOOP_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("SPANLOOP_KEY", "k")
    assert settings_from_environment(Signal.TRACES, {}).headers == {}
    monkeypatch.setenv("SPANLOOP_COLLECTOR_URL", "https://collector.example/")
    settings = settings_from_environment(Signal.LOGS, {})
    assert settings.resolve_url() == "https://collector.example/v1/logs"
    assert settings.headers == {"authorization": "Bearer k"}
    theirs = {"OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20other"}
    assert settings_from_environment(Signal.LOGS, theirs).headers == {"authorization": "Bearer other"}
    elsewhere = settings_from_environment(Signal.LOGS, {"OTEL_EXPORTER_OTLP_ENDPOINT": "https://otlp.example"})
    assert (elsewhere.headers, elsewhere.url) == ({}, "https://otlp.example/v1/logs")


@pytest.mark.parametrize(
    ("url", "default"),
    [
        ("http://127.0.0.1:4318/v1/traces", Compression.NONE),
        ("http://localhost:4318/v1/traces", Compression.NONE),
        ("http://[::1]:4318/v1/traces", Compression.NONE),
        ("https://otlp.example/v1/traces", Compression.GZIP),
        ("http://127-0-0-1.example:4318/v1/traces", Compression.GZIP),
    ],
)
def test_requests_to_this_machine_are_not_compressed_unless_the_user_says_so(url: str, default: Compression) -> None:
    for text, expected in (("", default), ("brotli", default), ("gzip", Compression.GZIP), ("none", Compression.NONE)):
        settings = settings_from_environment(Signal.TRACES, {"OTEL_EXPORTER_OTLP_COMPRESSION": text})
        assert settings.compression_to(url) is expected


def test_the_general_variables_serve_both_signals() -> None:
    variables = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "https://otlp.example:4318/",
        "OTEL_EXPORTER_OTLP_HEADERS": "X-Key=a%20b,other=c",
        "OTEL_EXPORTER_OTLP_TIMEOUT": "2.5",
        "OTEL_EXPORTER_OTLP_COMPRESSION": "deflate",
        "OTEL_EXPORTER_OTLP_CERTIFICATE": "ca.pem",
        "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE": "client.pem",
        "OTEL_EXPORTER_OTLP_CLIENT_KEY": "key.pem",
    }
    for signal in Signal:
        assert settings_from_environment(signal, variables) == OtlpSettings(
            signal=signal,
            url=f"https://otlp.example:4318/v1/{signal}",
            headers={"x-key": "a b", "other": "c"},
            timeout_s=2.5,
            compression=Compression.DEFLATE,
            tls=TlsFiles("ca.pem", "client.pem", "key.pem"),
        )


def test_the_signals_own_variables_win_and_its_endpoint_is_taken_whole() -> None:
    variables = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://general:4318",
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://traces:1/custom",
        "OTEL_EXPORTER_OTLP_HEADERS": "a=general",
        "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "a=traces",
    }
    assert settings_from_environment(Signal.TRACES, variables).url == "http://traces:1/custom"
    assert settings_from_environment(Signal.TRACES, variables).headers == {"a": "traces"}
    assert settings_from_environment(Signal.LOGS, variables).url == "http://general:4318/v1/logs"


@pytest.mark.parametrize("text", ["", "soon", "-1", "0"])
def test_a_senseless_timeout_is_the_default(text: str) -> None:
    assert settings_from_environment(Signal.LOGS, {"OTEL_EXPORTER_OTLP_TIMEOUT": text}).timeout_s == 10.0


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["python", "agent.py"], "agent"),
        (["python3.11", "-u", "-X", "dev", "-W", "error", "app/agent.py", "-m", "x"], "agent"),
        (["python", "-m", "pkg.tool", "--flag"], "pkg.tool"),
        (["python", "-mpkg"], "pkg"),
        (["python", "venv/bin/uvicorn", "app:app"], "uvicorn"),
        (["python", "/srv/agent/__main__.py"], "agent"),
        (["python", "/srv/agent/"], "agent"),
        (["python", "bundle.pyz"], "bundle"),
        (["python", "-c", "print()"], "python"),
        (["python", "-"], "python"),
        (["python"], "python"),
        ([], "python"),
    ],
)
def test_an_app_is_called_after_its_script(command: list[str], name: str) -> None:
    assert default_service_name(command) == name
