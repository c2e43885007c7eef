"""Shadow: send a copy of a call to a candidate, after the champion's answer went out, and store how both compare.

Invariant: a candidate's answer reaches no caller and no data set. It is requested without token ids and logprobs, and
stored in ``shadow_answers`` only, which nothing trains on. A copy never delays a caller's answer.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from ..api_errors import ApiError
from ..chat.answers import Answer, AnswerBuilder
from ..chat.interruption import Interruptible, PreemptedError
from ..chat.request import ChatRequest
from ..client.connection import EngineConnectionError
from ..client.engine_client import EngineClient
from ..metrics import Metrics
from .candidate import Candidate
from .shadow_answer import ShadowAnswer

_MAX_RUNNING: Final = 8
_TIMEOUT_S: Final = 600.0
_DROPPED_FIELDS: Final = ("stream", "stream_options", "logprobs", "top_logprobs", "return_token_ids", "prompt_logprobs")
_FAILURES: Final = (
    ApiError, EngineConnectionError, ValueError, AttributeError, TypeError, KeyError, RecursionError,
)  # fmt: skip
Record = Callable[[ShadowAnswer], Awaitable[None]]


class Answered(NamedTuple):
    """What the champion answered."""

    answer: Answer
    response_id: str
    policy_version: str
    latency_s: float
    tokens: int


class Shadows:
    """Sends copies.

    Args:
        client: For the candidate's engine.
        metrics: The counters to update.
    """

    def __init__(self, client: EngineClient, metrics: Metrics) -> None:
        self._client = client
        self._metrics = metrics
        self._running: set[asyncio.Task[None]] = set()

    def copy(self, candidate: Candidate, request: ChatRequest, answered: Answered, record: Record) -> None:
        """Send a copy in the background; skip it while eight run.

        Args:
            candidate: Gets the copy.
            request: The caller's.
            answered: The champion's answer.
            record: Stores what the candidate answered.
        """
        if len(self._running) >= _MAX_RUNNING:
            self._metrics.count("shadow_skipped_total")
            return
        task = asyncio.create_task(self._copy(candidate, request, answered, record), name="shadow")
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def close(self) -> None:
        """Cancel the copies that run."""
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _copy(self, candidate: Candidate, request: ChatRequest, answered: Answered, record: Record) -> None:
        began_s, started_ns = time.monotonic(), time.time_ns()
        answer, tokens, error = None, 0, ""
        try:
            async with candidate.admission.admit("") as slot:
                body = {name: value for name, value in request.document.items() if name not in _DROPPED_FIELDS}
                with Interruptible(PreemptedError() if slot.is_preempted else None) as block:
                    slot.on_preempt = lambda: block.interrupt(PreemptedError())
                    response = await self._client.request(
                        "POST",
                        f"{slot.endpoint.base_url}/v1/chat/completions",
                        json={**body, "model": slot.endpoint.served_name},
                        timeout_s=_TIMEOUT_S,
                    )
            if response.status_code == 200:
                document: dict[str, Any] = response.json()
                builder = AnswerBuilder()
                builder.add(document)
                usage: dict[str, Any] = document.get("usage") or {}
                answer, tokens = builder.build(), int(usage.get("completion_tokens") or 0)
            else:
                error = f"status {response.status_code}: {response.text[:200]}"
        except PreemptedError:
            return
        except (
            ApiError,
            EngineConnectionError,
            ValueError,
            AttributeError,
            TypeError,
            KeyError,
            RecursionError,
        ) as failure:
            error = f"{type(failure).__name__}: {failure}"
        self._metrics.count("shadow_answers_total", error=str(bool(error)).lower())
        tools = request.document.get("tools")
        await record(
            ShadowAnswer(
                canary_id=candidate.canary.id,
                response_id=answered.response_id,
                trace_id=request.trace.trace_id,
                candidate=candidate.canary.candidate.label,
                champion=answered.policy_version,
                answer="" if answer is None else answer.to_json(),
                champion_answer=answered.answer.to_json(),
                is_valid=answer is not None and answer.has_valid_calls(tools),
                champion_is_valid=answered.answer.has_valid_calls(tools),
                agreement="" if answer is None else answer.agreement(answered.answer),
                latency_s=time.monotonic() - began_s,
                champion_latency_s=answered.latency_s,
                tokens=tokens,
                champion_tokens=answered.tokens,
                error=error,
                started_ns=started_ns,
            )
        )
