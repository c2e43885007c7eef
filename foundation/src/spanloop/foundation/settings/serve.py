"""``[serve.ROLE]``: options of the role's process, the same as those of ``spanloop serve ROLE``.

Invariant: a key is an option of the role's module, with hyphens. None leaves the module's own default.
"""

from pydantic import Field

from .section import FilePath, Section


class Role(Section):
    """The options of one role."""

    def arguments(self, *without: str) -> list[str]:
        """Return the options that are set, as arguments of the role's module, except those of the given names."""
        arguments: list[str] = []
        for name, value in self:
            flag = f"--{name.replace('_', '-')}"
            if name in without or value is None or value is False:
                continue
            arguments.append(flag if value is True else f"{flag}={value}")
        return arguments


class RoleWithoutPort(Role):
    """The options of a role that serves nothing but its state."""

    status_host: str | None = None
    """Address of /healthz and /metrics; beyond the loopback only with API keys. Default: 127.0.0.1."""
    status_port: int | None = Field(default=None, ge=0, lt=65_536)
    """Port of /healthz and /metrics. Default: none."""


class ServeCollector(Role):
    """``[serve.collector]``."""

    host: str | None = None
    """Address to listen on; beyond the loopback only with API keys. Default: 127.0.0.1."""
    port: int | None = Field(default=None, ge=0, lt=65_536)
    """Port of OTLP/HTTP and scores. Default: 4318."""
    grpc_port: int | None = Field(default=None, ge=0, lt=65_536)
    """Port of OTLP/gRPC. Default: 4317 beside port 4318, else a free one."""
    no_grpc: bool | None = None
    """Serve HTTP only."""
    allow_anonymous: bool | None = None
    """Listen beyond the loopback without API keys."""
    spool_limit_bytes: int | None = Field(default=None, gt=0)
    """Answer 503 when so many bytes wait for ClickHouse."""
    body_limit_bytes: int | None = Field(default=None, gt=0)
    """Refuse larger requests with 413."""
    memory_limit_bytes: int | None = Field(default=None, gt=0)
    """Answer 503 when so many bytes of bodies are in memory."""
    redact: FilePath | None = None
    """File of redaction rules. Default: redaction.toml in the data directory, if it exists."""


class ServeGateway(Role):
    """``[serve.gateway]``."""

    host: str | None = None
    """Address to listen on; beyond the loopback only with API keys. Default: 127.0.0.1."""
    port: int | None = Field(default=None, ge=0, lt=65_536)
    """Port of the OpenAI-compatible API. Default: 8010."""
    allow_anonymous: bool | None = None
    """Listen beyond the loopback without API keys."""
    upstream: str | None = None
    """URL of a running vLLM server to use instead of starting one."""
    vllm_args: str | None = None
    """Further arguments for vLLM in one quoted string."""
    dtype: str | None = None
    """As vLLM's."""
    kv_cache_gib: int | None = Field(default=None, gt=0)
    """Size of the key/value cache on a CPU, GiB."""
    max_model_len: int | None = Field(default=None, gt=0)
    """Longest prompt plus response, tokens. Default: the model's own."""
    drain_timeout_s: float | None = Field(default=None, gt=0)
    """Longest wait of a swap of weights for running requests, seconds."""
    grace_s: float | None = Field(default=None, ge=0)
    """How long running requests may go on after SIGTERM, seconds; new ones get 503. Default: 3."""


class ServeDashboard(Role):
    """``[serve.dashboard]``."""

    host: str | None = None
    """Address to listen on. Default: 127.0.0.1."""
    port: int | None = Field(default=None, ge=0, lt=65_536)
    """Port of the web pages. Default: 8501."""


class ServePipeline(RoleWithoutPort):
    """``[serve.pipeline]``."""

    interval_s: float | None = Field(default=None, gt=0)
    """Seconds between two conversions."""


class ServeScheduler(RoleWithoutPort):
    """``[serve.scheduler]``."""

    slots: int | None = Field(default=None, ge=0)
    """Jobs that the scheduler itself runs at the same time. Default: none with ``spanloop serve``, 1 with
    ``spanloop up``."""
    gpu_slots: int | None = Field(default=None, ge=0)
    """Of them, jobs that may compute on a GPU. Default: all of them."""
    lease_s: float | None = Field(default=None, gt=0)
    """Seconds after which another process takes over what this one no longer renews."""
    grace_s: float | None = Field(default=None, gt=0)
    """Seconds between SIGTERM and SIGKILL to a job."""
    poll_s: float | None = Field(default=None, gt=0)
    """Seconds between two looks at the control database."""


class ServeRunner(RoleWithoutPort):
    """``[serve.runner]``."""

    slots: int | None = Field(default=None, ge=1)
    """Jobs that run at the same time."""
    gpu_slots: int | None = Field(default=None, ge=0)
    """Of them, jobs that may compute on a GPU. Default: all of them."""
    lease_s: float | None = Field(default=None, gt=0)
    """Seconds after which another runner takes over a job that this one no longer renews."""
    grace_s: float | None = Field(default=None, gt=0)
    """Seconds between SIGTERM and SIGKILL to a job."""
    poll_s: float | None = Field(default=None, gt=0)
    """Seconds between two looks at the control database."""


class ServeClickhouse(Role):
    """``[serve.clickhouse]``."""

    host: str | None = None
    """Address to listen on; other hosts need the password. Default: 127.0.0.1."""
    port: int | None = Field(default=None, ge=0, lt=65_536)
    """HTTP port. Default: 8123."""
    password_file: FilePath | None = None
    """File that holds the password of the user spanloop. Default: one is made in the data directory."""
    memory_cap_bytes: int | None = Field(default=None, gt=0)
    """Memory limit of the server. Default: a quarter of the machine's memory, at most 4 GiB."""


class Serve(Section):
    """``[serve]``: a section for each role."""

    collector: ServeCollector = ServeCollector()
    gateway: ServeGateway = ServeGateway()
    dashboard: ServeDashboard = ServeDashboard()
    pipeline: ServePipeline = ServePipeline()
    scheduler: ServeScheduler = ServeScheduler()
    runner: ServeRunner = ServeRunner()
    clickhouse: ServeClickhouse = ServeClickhouse()


def role_variable(role: str, option: str) -> str:
    """Return the variable of the environment for an option, such as ``SPANLOOP_SERVE_GATEWAY_PORT``."""
    return f"SPANLOOP_SERVE_{role}_{option}".upper()
