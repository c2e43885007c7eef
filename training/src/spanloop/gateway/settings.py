"""What one gateway process was told at its start."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

SERVED_NAME: Final = "policy"
"""The model name that the engine itself goes by; the gateway maps deployments to it."""

EXTERNAL_VERSION: Final = "external"
"""Version of a model that somebody else's server already serves and nobody deployed through us."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """How vLLM is started. Ignored with ``--upstream``."""

    dtype: str = "auto"
    """As vLLM's ``--dtype``; ``auto`` is float32 on a CPU that has no instructions for bfloat16."""
    kv_cache_gib: int = 1
    """Size of the key/value cache on a CPU, GiB."""
    max_model_len: int | None = None
    """Longest prompt plus answer, tokens; None: what the model's configuration says."""
    extra_args: tuple[str, ...] = ()
    """Handed to vLLM's command line at its end, where they win."""
    start_timeout_s: float = 900.0
    """Longest wait for the first healthy answer; large models load slowly."""
    stop_timeout_s: float = 5.0
    """Longest wait for vLLM's own shutdown before it is killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """All settings of a gateway process."""

    data_dir: Path
    host: str = "127.0.0.1"
    port: int = 8010
    """0 takes a free one."""
    upstream: str = ""
    """Base URL of a vLLM server that already runs; empty: start one."""
    engine: EngineSettings = field(default_factory=EngineSettings)
    drain_timeout_s: float = 60.0
    """How long a swap waits for running requests. Afterwards those that delivered nothing yet start again on the new
    weights, and half-delivered streams are ended."""
    max_body_bytes: int = 32 * 2**20
    """Largest request body."""
    spool_bytes: int = 2 * 2**30
    """Most bytes of captures that may wait for ClickHouse."""
    restart_limit: int = 6
    """Failed starts in a row after which the engine stays down until the next deployment."""
    first_backoff_s: float = 1.0
    """Pause before the first restart; doubles with each failure, up to a minute."""
