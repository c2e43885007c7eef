"""Continue conversations from the exact token ids that an engine saw and sampled.

A request that goes on from an answer of before is rendered by the engine, aligned with the ids that are kept, and sent
with ids as its prompt. Requests without history cost nothing but the entry that they leave.

Invariant: where anything is missing (an entry, a rendering, a vocabulary) the request is sent as it is, so the engine
renders it. Answers are the engine's own either way.
"""

import asyncio
import logging
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from spanloop.foundation.errors import SpanloopError

from ..capture.tokens import Capture
from ..chat.request import ChatRequest
from ..client.connection import EngineConnectionError
from ..client.engine_client import EngineClient
from ..engine.gate import EngineEndpoint
from ..engine.prompt_ids import PromptIdsRoute
from ..metrics import Metrics
from .alignment import Alignment, Spans, align
from .answer_messages import AnswerMessages
from .conversation_log import CaptureReference, ConversationLog
from .conversations import Conversations, Exact, Scope, answer_digests, message_digest
from .token_parts import AnswerSource

_log: Final = logging.getLogger(__name__)
_RENDER_TIMEOUT_S: Final = 120.0
_STORE_TIMEOUT_S: Final = 2.0
ReadIds = Callable[[list[str]], Mapping[str, Sequence[int]]]
"""From response ids to the ids of prompt and response, by generation id."""
_RENDERED_FIELDS: Final = ("kv_transfer_params", "continue_final_message", "truncate_prompt_tokens", "echo")
"""Fields with which a request's prompt is not the rendering of its messages."""


class Continuation(NamedTuple):
    """The exact ids of a request's prompt."""

    alignment: Alignment
    sampled: Spans
    """Which of its positions were sampled by the model."""

    route: PromptIdsRoute
    """How the engine takes them."""
    body: bytes
    """The engine's request."""


class Continuer:
    """Finds and keeps conversations.

    Args:
        client: For engines.
        metrics: The counters to update.
        max_bytes: Limit of the memory for token ids; 0 keeps none.
        log: Of captures, for conversations from before a restart.
        read_ids: Reads the token ids of captures from the store: prompt and response by generation id.
    """

    def __init__(
        self, client: EngineClient, metrics: Metrics, max_bytes: int, *, log: ConversationLog, read_ids: ReadIds
    ) -> None:
        self._client = client
        self._metrics = metrics
        self._conversations = Conversations(max_bytes)
        self._is_on = max_bytes > 0
        self._captures = log
        self._read_ids = read_ids

    @property
    def size_bytes(self) -> int:
        """Memory of the ids that are kept."""
        return self._conversations.size_bytes

    def is_exact(self, endpoint: EngineEndpoint) -> bool:
        """Return whether conversations on this engine are continued exactly."""
        return self._is_on and endpoint.facts.vocabulary is not None

    async def continue_exactly(
        self, request: ChatRequest, endpoint: EngineEndpoint, key: str, headers: Mapping[str, str]
    ) -> Continuation | None:
        """Return the exact ids for a request; None for one that continues no conversation that is kept.

        Args:
            request: The request.
            endpoint: The engine that answers it.
            key: The API key of the caller.
            headers: For the engine.

        Raises:
            EngineConnectionError: The engine is gone.
        """
        vocabulary = endpoint.facts.vocabulary
        route, name = endpoint.facts.prompt_ids, endpoint.served_name
        if (
            not self._is_on
            or vocabulary is None
            or not route.accepts(request)
            or any(request.document.get(name) for name in _RENDERED_FIELDS)
        ):
            return None
        messages: Sequence[Any] = request.document.get("messages") or ()
        digests = answer_digests(_scope(key, endpoint), messages)
        entries = self._conversations.find(digests) or await self._stored(digests)
        if not entries:
            return None
        answers = {answer for _, answer in digests}
        rendered = await self._render(request, endpoint, headers)
        if rendered is None:
            return None
        best: Alignment | None = None
        for entry in entries:
            # Of an answer that the client edited, white space and escapes count.
            sampled = (
                entry.sampled if entry.answer in answers else Spans(entry.sampled.ranges[:-1], entry.sampled.sources)
            )
            alignment = align(entry.token_ids, sampled, rendered, vocabulary, messages)
            if best is None or alignment.exact > best.exact:
                best = alignment
            if alignment.is_whole:
                break
        body = best and route.body(request, best.token_ids, name, endpoint.facts.max_model_len)
        if best is None or body is None:
            return None
        self._metrics.count("continuations_total", history="whole" if best.is_whole else "branched")
        return Continuation(best, best.sampled, route, body)

    def keep(
        self,
        request: ChatRequest,
        endpoint: EngineEndpoint,
        key: str,
        *,
        captures: Sequence[Capture],
        answers: AnswerMessages,
        continuation: Continuation | None,
    ) -> None:
        """Keep the ids of complete answers.

        Args:
            request: The request.
            endpoint: The engine that answered.
            key: The API key of the caller.
            captures: One for each choice.
            answers: The messages of the choices, as the client receives them.
            continuation: What the prompt was made of.
        """
        if "messages" not in request.document:
            return
        digest = message_digest(_scope(key, endpoint), request.document["messages"])
        before = Spans() if continuation is None else continuation.sampled
        place, digests, with_reasoning = len(request.document["messages"]), answers.digests(), answers.with_reasoning()
        for capture in captures:
            if not capture.is_complete or capture.choice_index not in digests:
                continue
            prompt_length = len(capture.prompt_token_ids)
            token_ids = array("I", capture.prompt_token_ids + capture.response_token_ids)
            source = AnswerSource(place, has_reasoning=capture.choice_index in with_reasoning)
            sampled = before.plus(prompt_length, len(token_ids), source)
            entry = Exact(token_ids, sampled, digests[capture.choice_index])
            self._conversations.add(digest, entry)
            self._captures.append(digest, CaptureReference(capture.generation_id, entry.answer, sampled))

    def close(self) -> None:
        """Close the log."""
        self._captures.close()

    async def _stored(self, digests: Sequence[tuple[bytes, bytes]]) -> list[Exact]:
        """Return the entries of a conversation whose ids are in the store only, and keep them in memory."""
        digest, references = self._captures.find(digests)
        if not references:
            return []
        try:
            async with asyncio.timeout(_STORE_TIMEOUT_S):
                ids = await asyncio.to_thread(self._read_ids, [each.response_id for each in references])
        except (SpanloopError, OSError, TimeoutError) as error:
            _log.warning("a conversation from before is tokenised again, the store does not answer: %s", error)
            return []
        for reference in references:
            if (token_ids := ids.get(reference.generation_id)) is not None:
                self._conversations.add(digest, Exact(array("I", token_ids), reference.sampled, reference.answer))
        return self._conversations.find(digests)

    async def _render(
        self, request: ChatRequest, endpoint: EngineEndpoint, headers: Mapping[str, str]
    ) -> "array[int] | None":
        """Return the ids of the request's messages; None where the engine refuses them, as it will the request."""
        route = endpoint.facts.prompt_ids
        response = await self._client.request(
            "POST",
            endpoint.base_url + route.render_path,
            content=route.render_body(request, endpoint.served_name),
            headers=headers,
            timeout_s=_RENDER_TIMEOUT_S,
        )
        try:
            if response.status_code == 200:
                return array("I", route.rendered(response.json()))
        except (ValueError, KeyError, TypeError, OverflowError) as error:
            raise EngineConnectionError(f"the rendering of a chat has no token ids: {error!r}") from error
        _log.warning("the engine does not render a chat: %s: %s", response.status_code, response.text[:200])
        return None


def _scope(key: str, endpoint: EngineEndpoint) -> Scope:
    deployment = endpoint.deployment
    # Without a fingerprint, only the same version is known to have the same tokenizer.
    return Scope(key, deployment.name, deployment.tokenizer or deployment.label)
