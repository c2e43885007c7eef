"""The few calls that the gateway makes to a vLLM server besides chat: health, probe, reload."""

import asyncio
import math
from collections.abc import Mapping
from typing import Any, Final, cast

import httpx

from spanloop.semconv.errors import ServiceError

_PROBE_TOKENS: Final = 24
_RESET_TRIES: Final = 50
_RESET_PAUSE_S: Final = 0.1
_RELOAD_TIMEOUT_S: Final = 600.0
_CALL_TIMEOUT_S: Final = 60.0
_HEALTH_TIMEOUT_S: Final = 5.0

_WARM_UP: Final[Mapping[str, Any]] = {
    "messages": [{"role": "user", "content": "Hello"}],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}],
    "max_tokens": 2,
    "logprobs": True,
    "return_token_ids": True,
}


class VllmApi:
    """One vLLM server.

    Args:
        base_url: Without a trailing slash.
        client: Shared HTTP client.
    """

    def __init__(self, base_url: str, client: httpx.AsyncClient) -> None:
        self.base_url = base_url.rstrip("/")
        self._client = client

    async def is_healthy(self) -> bool:
        """Whether ``/health`` says so."""
        try:
            answer = await self._client.get(f"{self.base_url}/health", timeout=_HEALTH_TIMEOUT_S)
        except httpx.HTTPError:
            return False
        return answer.status_code == 200

    async def served_model(self) -> str:
        """The id of the first model that the server lists.

        Raises:
            ServiceError: It lists none, or does not answer like an OpenAI server.
        """
        return str((await self._first_model())["id"])

    async def served_root(self) -> str:
        """The folder, or hub name, that the server says its first model came from; empty when it does not say.

        Raises:
            ServiceError: It lists no model.
        """
        return str((await self._first_model()).get("root") or "")

    async def warm_up(self, served_name: str) -> None:
        """One small chat with a tool: vLLM imports and builds what the first chat needs only then (seconds).

        Raises:
            ServiceError: The model cannot chat, for instance because it has no chat template.
        """
        await self._call(
            "POST", "/v1/chat/completions", {**_WARM_UP, "model": served_name}, timeout_s=_RELOAD_TIMEOUT_S
        )

    async def probe(self, served_name: str) -> tuple[float, ...]:
        """Logprobs of a fixed prompt: a fingerprint of the weights that answer.

        Raises:
            ServiceError: The server refuses, or answers with numbers that are none.
        """
        body = {
            "model": served_name,
            "prompt": list(range(1, _PROBE_TOKENS + 1)),
            "max_tokens": 1,
            "temperature": 0,
            "prompt_logprobs": 0,
        }
        document = await self._call("POST", "/v1/completions", body)
        try:
            entries = document["choices"][0]["prompt_logprobs"]
            values = tuple(float(next(iter(entry.values()))["logprob"]) for entry in entries if entry)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise ServiceError(
                f"{self.base_url} answered the probe without prompt logprobs: {document!r:.200}"
            ) from error
        if not values or not all(math.isfinite(value) for value in values):
            raise ServiceError(
                f"The weights at {self.base_url} answer the probe with {values!r:.200}, expected numbers."
            )
        return values

    async def reload_weights(self, path: str) -> None:
        """Load other weights of the same network in place and forget the cache that the old ones filled.

        Raises:
            ServiceError: The engine refused. It may be unusable afterwards: a failed reload ends vLLM's worker.
        """
        call = {"method": "reload_weights", "kwargs": {"weights_path": path}}
        await self._call("POST", "/collective_rpc", call, timeout_s=_RELOAD_TIMEOUT_S)
        # Refused while an aborted request still holds blocks, for a step or two.
        for _ in range(_RESET_TRIES):
            if (await self._call("POST", "/reset_prefix_cache")).get("success") is not False:
                return
            await asyncio.sleep(_RESET_PAUSE_S)
        raise ServiceError(f"{self.base_url} does not forget the prefix cache of the old weights.")

    async def _first_model(self) -> Mapping[str, Any]:
        document = await self._call("GET", "/v1/models")
        try:
            model = document["data"][0]
            return {**model, "id": model["id"]}
        except (KeyError, IndexError, TypeError) as error:
            raise ServiceError(f"{self.base_url}/v1/models lists no model: {document!r:.200}") from error

    async def _call(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, timeout_s: float = _CALL_TIMEOUT_S
    ) -> dict[str, Any]:
        try:
            answer = await self._client.request(method, self.base_url + path, json=body, timeout=timeout_s)
        except httpx.HTTPError as error:
            raise ServiceError(f"{method} {self.base_url}{path} failed: {type(error).__name__}: {error}") from error
        if answer.status_code != 200:
            raise ServiceError(f"{method} {self.base_url}{path} was answered {answer.status_code}: {answer.text[:500]}")
        try:
            document: object = answer.json() if answer.content else {}
        except ValueError as error:
            raise ServiceError(
                f"{method} {self.base_url}{path} was not answered with JSON: {answer.text[:200]}"
            ) from error
        return cast("dict[str, Any]", document) if isinstance(document, dict) else {}
