"""Calls to a vLLM server besides chat: health, models, weight probe, weight reload."""

import asyncio
import contextlib
import math
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, cast

from spanloop.foundation.errors import ServiceError

from ..chat.request import ChatRequest
from ..client.connection import EngineConnectionError
from ..client.engine_client import EngineClient
from ..client.json_codec import encode_json
from .prompt_ids import BY_CHAT, BY_COMPLETIONS, PromptIdsRoute
from .served_adapter import ServedAdapter

_PROBE_TOKEN_IDS: Final = tuple(range(1, 25))
"""A prompt of ids that each vocabulary has."""
_RESET_ATTEMPTS: Final = 50
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
    """HTTP API of one vLLM server.

    Args:
        base_url: The server's URL, without ``/v1``.
        client: The HTTP client to use.
        model: Its name of the model; empty for the first that it lists.
    """

    def __init__(self, base_url: str, client: EngineClient, model: str = "") -> None:
        self.base_url = base_url.rstrip("/")
        self._client = client
        self._model = model
        self.has_health_route = True
        """Whether ``/health`` exists, as the last check said; other servers than vLLM and SGLang have none."""
        self.health_status = 0
        """Status that the last check was answered with; 0 for no answer."""

    async def is_healthy(self) -> bool:
        """Return whether ``/health``, or ``/v1/models`` of a server without it, responds with 200."""
        self.health_status = 0
        try:
            response = await self._client.get(f"{self.base_url}/health", timeout_s=_HEALTH_TIMEOUT_S)
            self.has_health_route = not 400 <= response.status_code < 500
            if not self.has_health_route:
                response = await self._client.get(f"{self.base_url}/v1/models", timeout_s=_HEALTH_TIMEOUT_S)
        except EngineConnectionError:
            return False
        self.health_status = response.status_code
        return response.status_code == HTTPStatus.OK

    async def served_model(self) -> str:
        """Return the model's id.

        Raises:
            ServiceError: The server lists none, or its response is not in OpenAI's format.
        """
        return str((await self._model_card())["id"])

    async def served_root(self) -> str:
        """Return the folder, or hub name, that the model was loaded from; empty if the server omits it.

        Raises:
            ServiceError: It lists no model.
        """
        return str((await self._model_card()).get("root") or "")

    async def max_model_len(self) -> int | None:
        """Return the longest prompt plus response of the model, tokens; None if the server omits it.

        Raises:
            ServiceError: It lists no model.
        """
        length = (await self._model_card()).get("max_model_len")
        return length if isinstance(length, int) else None

    async def server_info(self) -> dict[str, Any]:
        """Return the server's configuration and environment.

        Raises:
            ServiceError: It does not tell them, for instance because it runs without ``VLLM_SERVER_DEV_MODE=1``.
        """
        return await self._call("GET", "/server_info?config_format=json")

    async def prompt_ids_route(self, served_name: str) -> PromptIdsRoute | None:
        """Return how the server renders a chat to token ids and answers one whose prompt is given as ids; None: not."""
        for route in (BY_CHAT, BY_COMPLETIONS):
            if await self._takes_ids_by(route, served_name):
                return route
        return None

    async def _takes_ids_by(self, route: PromptIdsRoute, served_name: str) -> bool:
        request = ChatRequest.of_document({"messages": _WARM_UP["messages"], "max_tokens": 1}, None)
        try:
            rendered = await self._send("POST", route.render_path, route.render_body(request, served_name))
            ids: list[int] = [*route.rendered(rendered), *route.rendered(rendered)[:1]]
            answer = await self._send("POST", route.path, route.body(request, ids, served_name, None) or b"")
            if route.to_chat(answer, is_stream=False).get("prompt_token_ids") != ids:
                return False
            if route.path == ChatRequest.path:
                return True
            # Conversations go on from the answers to chats, which need ids, too. A tool would need a parser.
            chat_body = {name: value for name, value in _WARM_UP.items() if name != "tools"}
            chat = await self._call("POST", ChatRequest.path, {**chat_body, "model": served_name, "max_tokens": 1})
        except (ServiceError, KeyError, TypeError):
            return False
        return bool(chat.get("prompt_token_ids"))

    async def refused_fields(self, served_name: str) -> frozenset[str]:
        """Return those of the gateway's additional fields that the server refuses in a chat request.

        Raises:
            ServiceError: It does not answer a chat without them either.
        """
        body = {"model": served_name, "messages": _WARM_UP["messages"], "max_completion_tokens": 16}
        fields = {"logprobs": True, "return_token_ids": True}
        for refused in (frozenset[str](), frozenset({"return_token_ids"})):
            accepted = {name: value for name, value in fields.items() if name not in refused}
            with contextlib.suppress(ServiceError):
                await self._call("POST", "/v1/chat/completions", {**body, **accepted})
                return refused
        await self._call("POST", "/v1/chat/completions", body)
        return frozenset(fields)

    async def warm_up(self, served_name: str) -> None:
        """Send one small chat request with a tool, because vLLM's first chat takes seconds of imports and compilation.

        Raises:
            ServiceError: The chat request failed, for instance because the model has no chat template.
        """
        await self._call(
            "POST", "/v1/chat/completions", {**_WARM_UP, "model": served_name}, timeout_s=_RELOAD_TIMEOUT_S
        )

    async def probe(self, served_name: str, token_ids: Sequence[int] = _PROBE_TOKEN_IDS) -> tuple[float, ...]:
        """Return the logprobs of a prompt's tokens after the first, as a fingerprint of the loaded weights.

        Raises:
            ServiceError: The request failed, or the response has no finite logprobs.
        """
        body = {
            "model": served_name,
            "prompt": list(token_ids),
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
                f"{self.base_url} returned no prompt logprobs for the probe: {document!r:.200}"
            ) from error
        if not values or not all(math.isfinite(value) for value in values):
            raise ServiceError(
                f"The probe of the weights at {self.base_url} gave {values!r:.200}, expected finite logprobs."
            )
        return values

    async def sleep(self) -> None:
        """Move the weights to the host's memory and drop the key/value cache (vLLM's sleep level 1, GPU only).

        Raises:
            ServiceError: The server does not sleep, for instance because it runs without ``--enable-sleep-mode``.
        """
        await self._call("POST", "/sleep?level=1", timeout_s=_RELOAD_TIMEOUT_S)

    async def wake_up(self, served_name: str) -> None:
        """Move the weights back and send one small chat request.

        Raises:
            ServiceError: The server does not answer with the weights it had, for instance because a job still holds
                the GPU's memory.
        """
        await self._call("POST", "/wake_up", timeout_s=_RELOAD_TIMEOUT_S)
        await self.warm_up(served_name)

    async def reload_weights(self, path: str) -> None:
        """Load other weights of the same network in place and clear the prefix cache of the old weights.

        Raises:
            ServiceError: The reload failed. The engine may be unusable: a failed reload ends vLLM's worker.
        """
        body = {"method": "reload_weights", "kwargs": {"weights_path": path}}
        await self._call("POST", "/collective_rpc", body, timeout_s=_RELOAD_TIMEOUT_S)
        # vLLM rejects the reset while an aborted request still holds blocks, for a step or two.
        for _ in range(_RESET_ATTEMPTS):
            if (await self._call("POST", "/reset_prefix_cache")).get("success") is not False:
                return
            await asyncio.sleep(_RESET_PAUSE_S)
        raise ServiceError(f"{self.base_url} does not clear the prefix cache of the old weights.")

    async def load_adapter(self, adapter: ServedAdapter) -> None:
        """Load a LoRA adapter beside the weights; the server must run with ``--enable-lora``.

        Raises:
            ServiceError: The server cannot load it.
        """
        body = {"lora_name": adapter.name, "lora_path": adapter.path}
        await self._call("POST", "/v1/load_lora_adapter", body, timeout_s=_RELOAD_TIMEOUT_S, is_json=False)

    async def unload_adapter(self, name: str) -> None:
        """Unload a LoRA adapter.

        Raises:
            ServiceError: The server has none of that name.
        """
        await self._call("POST", "/v1/unload_lora_adapter", {"lora_name": name}, is_json=False)

    async def _model_card(self) -> Mapping[str, Any]:
        document = await self._call("GET", "/v1/models")
        try:
            cards: list[Mapping[str, Any]] = [{**card, "id": card["id"]} for card in document["data"]]
            named = [card for card in cards if card["id"] == self._model]
            return {"id": self._model} if self._model and not named else (named or cards)[0]
        except (KeyError, IndexError, TypeError) as error:
            raise ServiceError(f"{self.base_url}/v1/models lists no model: {document!r:.200}") from error

    async def _call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        timeout_s: float = _CALL_TIMEOUT_S,
        is_json: bool = True,
    ) -> dict[str, Any]:
        content = b"" if body is None else encode_json(body)
        return await self._send(method, path, content, timeout_s=timeout_s, is_json=is_json)

    async def _send(
        self,
        method: str,
        path: str,
        content: bytes,
        *,
        timeout_s: float = _CALL_TIMEOUT_S,
        is_json: bool = True,
    ) -> dict[str, Any]:
        try:
            response = await self._client.request(method, self.base_url + path, content=content, timeout_s=timeout_s)
        except EngineConnectionError as error:
            raise ServiceError(f"{method} {self.base_url}{path} failed: {error}") from error
        if response.status_code != 200:
            raise ServiceError(f"{method} {self.base_url}{path} failed: {response.status_code}: {response.text[:500]}")
        try:
            document: object = response.json() if response.content and is_json else {}
        except ValueError as error:
            raise ServiceError(
                f"The response to {method} {self.base_url}{path} is not JSON: {response.text[:200]}"
            ) from error
        return cast("dict[str, Any]", document) if isinstance(document, dict) else {}
