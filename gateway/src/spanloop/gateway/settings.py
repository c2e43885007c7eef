"""Settings of a gateway process."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from spanloop.foundation.keys.tls import TlsFiles
from spanloop.foundation.settings import Limits

SERVED_NAME: Final = "policy"
"""The engine's own name for its model; the gateway maps deployments to it."""

EXTERNAL_VERSION: Final = "external"
"""The version of a model that an external server serves and that was not deployed by this gateway."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """How to start vLLM. Ignored with ``--upstream``."""

    dtype: str = "auto"
    """As vLLM's ``--dtype``; ``auto`` is float32 on a CPU that has no instructions for bfloat16."""
    kv_cache_gib: int = 1
    """Size of the key/value cache on a CPU, GiB."""
    max_model_len: int | None = None
    """Maximum length of prompt plus response, tokens; None: as in the model's configuration."""
    extra_args: tuple[str, ...] = ()
    """Appended to vLLM's command line, where they override earlier options."""
    start_timeout_s: float = 900.0
    """Maximum wait for the first successful health check; large models load slowly."""
    stop_timeout_s: float = 5.0
    """Maximum wait for vLLM's own shutdown before it is killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """All settings of a gateway process."""

    data_dir: Path
    host: str = "127.0.0.1"
    """Address to listen on; beyond loopback only with API keys (`spanloop.foundation.keys`) or `allow_anonymous`."""
    allow_anonymous: bool = False
    """Listen beyond loopback without keys: every client that reaches the address may use the model."""
    port: int = 8010
    """0 chooses a free port."""
    upstream: str = ""
    """Base URL of a running vLLM server; empty: start one."""
    limits: Limits = field(default_factory=Limits)
    """Limits of rate, concurrency and body size by API key."""
    tls: TlsFiles | None = None
    """The certificate; None is plain HTTP."""
    engine: EngineSettings = field(default_factory=EngineSettings)
    drain_timeout_s: float = 60.0
    """Maximum wait of a swap for running requests. Requests that have sent nothing by then are repeated on the new
    weights; started streams are ended with an error."""
    grace_s: float = 3.0
    """How long running requests may go on after SIGTERM; new ones get 503. With the engine's stop it stays below the
    10 s in which a service must stop."""
    log_format: str | None = None
    """``text`` or ``json``; None is as the environment or the configuration says."""
    max_body_bytes: int = 32 * 2**20
    """Maximum size of a request body."""
    spool_bytes: int = 2 * 2**30
    """Maximum size of the captures that wait for ClickHouse."""
    restart_limit: int = 6
    """Consecutive failed starts after which the engine stays down until the next deployment."""
    first_backoff_s: float = 1.0
    """Delay before the first restart; doubles with each failure, up to 60 s."""
