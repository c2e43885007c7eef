"""Settings of the gateway, and of the engine that it starts."""

import shlex
from typing import Self
from urllib.parse import urlsplit

from pydantic import Field, FilePath, field_validator, model_validator

from spanloop.semconv.environment import GATEWAY_PORT

from ..section import Section
from .base import ListeningSettings, Port


class EngineSettings(Section):
    """How to start vLLM. Ignored with ``upstream``."""

    dtype: str = "auto"
    """As vLLM's --dtype; auto is float32 on a CPU without instructions for bfloat16."""
    kv_cache_gib: int = Field(default=1, gt=0)
    """Size of the key/value cache on a CPU, GiB."""
    max_model_len: int | None = Field(default=None, gt=0)
    """Longest prompt plus response, tokens. Default: the model's own."""
    tool_call_parser: str = ""
    """As vLLM's --tool-call-parser. Default: by the model's family, hermes for an unknown one; none: no tool calls."""
    reasoning_parser: str = ""
    """As vLLM's --reasoning-parser. Default: by the model's family; none leaves thinking in the text."""
    tensor_parallel: int = Field(default=1, ge=1)
    """GPUs of one engine, as vLLM's --tensor-parallel-size."""
    max_adapters: int = Field(default=0, ge=0)
    """LoRA adapters that an engine serves by name beside its model (spanloop models deploy NAME --beside)."""
    max_lora_rank: int = Field(default=16, gt=0, le=512)
    """Largest rank of such an adapter; each place for an adapter takes GPU memory of this rank."""
    vllm_args: str = ""
    """Further arguments for vLLM in one quoted string; they override earlier ones."""
    start_timeout_s: float = Field(default=900.0, gt=0)
    """Longest wait for vLLM's first successful health check, seconds; large models load slowly."""
    stop_timeout_s: float = Field(default=5.0, ge=0)
    """Longest wait for vLLM's own shutdown before it is killed, seconds."""

    @field_validator("vllm_args")
    @classmethod
    def _is_quoted(cls, text: str) -> str:
        shlex.split(text)
        return text

    @property
    def extra_args(self) -> tuple[str, ...]:
        """The single arguments of ``vllm_args``."""
        return tuple(shlex.split(self.vllm_args))


class GatewaySettings(EngineSettings, ListeningSettings):
    """``[serve.gateway]``: serve a model by the OpenAI-compatible API."""

    role = "gateway"
    module = "spanloop.gateway"

    host: str = "127.0.0.1"
    """Address to listen on; beyond the loopback only with API keys, or with allow_anonymous."""
    port: Port = GATEWAY_PORT
    """Port of the OpenAI-compatible API; 0 selects a free one."""
    allow_anonymous: bool = False
    """Listen beyond the loopback without API keys: every client that reaches the address may use the model."""
    upstream: str = ""
    """URL of a running vLLM server, or another of OpenAI's API, to use instead of starting one; #MODEL after it names
    one of its models. Several URLs are separated by spaces. To train on vLLM's samples, start it with
    --logprobs-mode processed_logprobs --generation-config vllm."""
    upstream_key_file: FilePath | None = None
    """File with the API key that the upstreams need. It replaces the callers'."""
    follow: str = ""
    """URL of another gateway: this one serves what that one serves, and takes no deployment itself. It needs
    SPANLOOP_KEY, a key of the scope train. A gateway whose own address it is follows none, so that all hosts can have
    the same settings."""
    drain_timeout_s: float = Field(default=60.0, gt=0)
    """Longest wait of a swap of weights for running requests, seconds. Requests that have sent nothing by then are
    repeated on the new weights; started streams end with an error."""
    grace_s: float = Field(default=3.0, ge=0)
    """Seconds that running requests may go on after SIGTERM; new ones get 503. With the engine's stop it stays below
    the 10 s in which a service must stop."""
    max_body_bytes: int = Field(default=32 * 2**20, gt=0)
    """Refuse larger request bodies with 413."""
    max_choices: int = Field(default=128, gt=0)
    """Refuse requests for more choices (n) with 400. An engine samples all choices of a request at the same time."""
    engines: int = Field(default=1, ge=1)
    """Engines to start with the same model. Each uses tensor_parallel GPUs of its own, and a conversation stays with
    one."""
    engine_requests: int = Field(default=256, gt=0)
    """Requests that each engine gets at the same time; more wait, and keys with fewer running requests come first."""
    waiting_requests: int = Field(default=1024, ge=0)
    """Requests that wait for an engine; above it the key with the most waiting ones gets 503 with Retry-After."""
    bodies_bytes: int = Field(default=512 * 2**20, gt=0)
    """Limit of the bodies of all requests in progress together; above it 503 with Retry-After."""
    spool_bytes: int = Field(default=2 * 2**30, gt=0)
    """Limit of the bytes of captures that wait for ClickHouse."""
    conversation_bytes: int = Field(default=64 * 2**20, ge=0)
    """Limit of the memory for token ids of earlier turns, from which conversations are continued exactly; 0 lets the
    engine tokenise each turn again."""
    responses_bytes: int = Field(default=2**30, gt=0)
    """Limit of the stored responses of the Responses API; the oldest leave first."""
    responses_days: float = Field(default=30.0, gt=0)
    """Days after which a stored response is deleted."""
    cors_origins: str = ""
    """Origins of web pages that may call the gateway from a browser, separated by spaces; * allows every one."""
    restart_limit: int = Field(default=6, ge=0)
    """Consecutive failed starts after which the engine stays down until the next deployment."""
    first_backoff_s: float = Field(default=1.0, ge=0)
    """Seconds before the first restart of the engine; doubles with each failure, up to 60 s."""

    @field_validator("upstream")
    @classmethod
    def _without_version(cls, urls: str) -> str:
        parts = [url.partition("#") for url in urls.split()]
        return " ".join(url.rstrip("/").removesuffix("/v1") + mark + model for url, mark, model in parts)

    @field_validator("follow")
    @classmethod
    def _is_url(cls, url: str) -> str:
        parts = urlsplit(url)
        if url and (parts.scheme not in {"http", "https"} or not parts.hostname):
            raise ValueError(f"got {url!r}; expected the URL of a gateway, such as http://gateway1:8010")
        return url

    @model_validator(mode="after")
    def _engines_are_children(self) -> Self:
        if self.upstream and self.engines > 1:
            raise ValueError("engines counts the engines that the gateway starts; name several URLs in upstream")
        return self

    @property
    def upstreams(self) -> tuple[str, ...]:
        """The single URLs of ``upstream``."""
        return tuple(self.upstream.split())
