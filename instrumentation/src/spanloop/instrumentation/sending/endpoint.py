"""Read OTLP export settings from ``OTEL_EXPORTER_OTLP_*``; the default is the spanloop of this machine.

Invariant: every variable that OpenTelemetry defines for an OTLP/HTTP exporter has its specified meaning here; only the
defaults are ours: the collector of ``SPANLOOP_COLLECTOR_URL`` with the key of ``SPANLOOP_KEY``, else the announced one;
gzip, except to this machine. The key is never sent to an endpoint that another variable names.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final
from urllib.parse import urlsplit

from opentelemetry.util.re import parse_env_headers

from spanloop.semconv.environment import (
    COLLECTOR_PORT,
    KEY_ENV,
    configured_address,
    default_data_dir,
    read_run_file,
    read_setting,
)
from spanloop.semconv.errors import ConfigurationError

from ..notice import print_once

_DEFAULT_TIMEOUT_S: Final = 10.0


class Signal(StrEnum):
    """A kind of telemetry; the value is the path below ``/v1/``."""

    TRACES = "traces"
    LOGS = "logs"


class Compression(StrEnum):
    """The encodings that OTLP exporters may be configured to use."""

    NONE = "none"
    GZIP = "gzip"
    DEFLATE = "deflate"


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files; empty where the system's own certificates, or no client certificate, are used."""

    certificate: str = ""
    client_certificate: str = ""
    client_key: str = ""


@dataclass(frozen=True, slots=True)
class OtlpSettings:
    """Export settings of one signal.

    Attributes:
        signal: The kind of telemetry.
        url: The configured URL with its path; empty means spanloop's own collector.
        headers: Sent with every request, names in lower case.
        timeout_s: For one batch, retries included.
        compression: Of the request body; None means the default of ``compression_to``.
        tls: For https.
    """

    signal: Signal
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    timeout_s: float = _DEFAULT_TIMEOUT_S
    compression: Compression | None = None
    tls: TlsFiles = TlsFiles()

    def resolve_url(self) -> str:
        """Return the current URL. Resolved per request: the collector may start, or move, while the app runs."""
        return self.url or f"{discover_collector()}/v1/{self.signal}"

    def compression_to(self, url: str) -> Compression:
        """Return the configured compression, else gzip; but none to this machine, where it costs more than it saves."""
        if self.compression is not None:
            return self.compression
        host = urlsplit(url).hostname or ""
        return Compression.NONE if host in {"localhost", "::1"} or host.startswith("127.") else Compression.GZIP


def discover_collector() -> str:
    """Return the base URL of spanloop's own collector: configured, else announced, else on the standard port."""
    try:
        if (configured := configured_address("collector")) is not None:
            return configured.url
        running = read_run_file(default_data_dir(), "collector")
    except ConfigurationError as error:
        print_once(str(error))
        running = None
    except RuntimeError:  # there is no home directory
        running = None
    return running.url.rstrip("/") if running else f"http://127.0.0.1:{COLLECTOR_PORT}"


def configured_key_headers() -> dict[str, str]:
    """Return the header with the key for the collector of ``SPANLOOP_COLLECTOR_URL``; empty without one of them."""
    try:
        key = read_setting(KEY_ENV) if configured_address("collector") is not None else ""
    except ConfigurationError as error:
        print_once(str(error))
        return {}
    return {"authorization": f"Bearer {key}"} if key else {}


def settings_from_environment(signal: Signal, environment: Mapping[str, str] | None = None) -> OtlpSettings:
    """Read OpenTelemetry's variables for ``signal``; the signal's own win over the general ones."""
    variables = os.environ if environment is None else environment

    def value(name: str) -> str:
        specific = variables.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_{name}", "")
        return (specific or variables.get(f"OTEL_EXPORTER_OTLP_{name}", "")).strip()

    url = _url(signal, variables)
    return OtlpSettings(
        signal=signal,
        url=url,
        headers={**({} if url else configured_key_headers()), **parse_env_headers(value("HEADERS"), liberal=True)},
        timeout_s=_timeout_s(value("TIMEOUT")),
        compression=_compression(value("COMPRESSION")),
        tls=TlsFiles(value("CERTIFICATE"), value("CLIENT_CERTIFICATE"), value("CLIENT_KEY")),
    )


def _url(signal: Signal, variables: Mapping[str, str]) -> str:
    specific = variables.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT", "").strip()
    if specific:
        return specific
    general = variables.get("OTEL_EXPORTER_OTLP_ENDPOINT", "").strip()
    return f"{general.rstrip('/')}/v1/{signal}" if general else ""


def _timeout_s(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        return _DEFAULT_TIMEOUT_S
    return seconds if seconds > 0 else _DEFAULT_TIMEOUT_S


def _compression(text: str) -> Compression | None:
    try:
        return Compression(text.lower())
    except ValueError:
        return None
