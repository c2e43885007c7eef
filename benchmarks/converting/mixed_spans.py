"""The production mix as the store holds it: spans in three dialects, captures and scores."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from random import Random
from typing import Final

from converting.mixed_attributes import DIALECTS, VERSION
from converting.mixed_episodes import Episode, ModelCall, ToolUse
from converting.stored_frames import Given, Row, frame, items

from spanloop.converters import frames

START_NS: Final = int(datetime(2026, 11, 20, tzinfo=UTC).timestamp()) * 1_000_000_000
SECOND_NS: Final = 1_000_000_000


def given(episodes: Iterable[Episode]) -> Given:
    """What the conversion reads; episodes begin two seconds apart and overlap."""
    spans: list[Row] = []
    generations: list[Row] = []
    scores: list[Row] = []
    for episode in episodes:
        story = _Story(episode)
        story.tell()
        spans += story.spans
        generations += story.generations
        scores += story.scores
    return Given(frame(spans, frames.SPANS), frame(generations, frames.GENERATIONS), frame(scores, frames.SCORES))


class _Story:
    """One episode, span by span."""

    def __init__(self, episode: Episode) -> None:
        self.episode = episode
        self.random = Random(f"ids {episode.number}")
        self.dialect = DIALECTS[episode.dialect]
        self.now_ns = self.begin_ns = START_NS + 2 * SECOND_NS * episode.number
        self.trace, self.root = self._trace_id(), "" if episode.is_bare else self._span_id()
        self.spans: list[Row] = []
        self.generations: list[Row] = []
        self.scores: list[Row] = []

    def tell(self) -> None:
        """Write it down."""
        for call in self.episode.calls:
            if self.episode.is_bare:
                self.trace = self._trace_id()
            self._call(call)
            for use in () if self.episode.is_bare else call.tools:
                self._tool(use)
        if self.root:
            error = self.episode.calls[-1].error
            values = self.dialect.agent(self.episode)
            self._span(self.root, "", self.episode.agent.name, values, error, since_ns=self.begin_ns)
        if self.episode.reward is not None:
            self._score(self.episode.reward)

    def _call(self, call: ModelCall) -> None:
        own = self._span_id()
        since_ns = self._passes(400, 3_000)
        values = self.dialect.call(self.episode, call)
        self._span(own, self.root, self.dialect.call_name, values, call.error, since_ns=since_ns)
        if call.said is not None and self.episode.is_captured:
            prompt = [token for message in call.seen for token in message.tokens()]
            response = list(call.said.tokens())
            self.generations.append(
                {
                    "generation_id": f"{call.response_id}/0",
                    "response_id": call.response_id,
                    "choice_index": 0,
                    "trace_id": self.trace,
                    "parent_span_id": own,
                    "policy_version": VERSION,
                    "prompt_token_ids": prompt,
                    "response_token_ids": response,
                    "logprobs": [-0.25] * len(response),
                    "finish_reason": "stop",
                    "is_complete": True,
                    "sampling": items({"temperature": "0.7"}),
                    "ingested_at": self.now_ns // 1_000,
                }
            )

    def _tool(self, use: ToolUse) -> None:
        since_ns = self._passes(20, 800)
        self._span(self._span_id(), self.root, use.name, self.dialect.tool(use), use.error, since_ns=since_ns)

    def _span(
        self,
        own: str,
        parent: str,
        name: str,
        values: Mapping[str, str],
        error: tuple[str, str] | None,
        *,
        since_ns: int,
    ) -> None:
        event = {"exception.type": error[0], "exception.message": error[1]} if error else {}
        self.spans.append(
            {
                "Timestamp": since_ns,
                "TraceId": self.trace,
                "SpanId": own,
                "ParentSpanId": parent,
                "SpanName": name,
                "ServiceName": self.episode.agent.service,
                "ScopeName": self.dialect.scope,
                "SpanAttributes": items(values),
                "Duration": self.now_ns - since_ns,
                "StatusCode": "Error" if error else "Unset",
                "StatusMessage": error[1] if error else "",
                "Events.Name": ["exception"] if error else [],
                "Events.Attributes": [items(event)] if error else [],
                "DroppedAttributesCount": 0,
                "IngestedAt": self.now_ns // 1_000 + 1_000_000,
            }
        )

    def _score(self, value: float) -> None:
        self.scores.append(
            {
                "score_id": f"score-{self.episode.number}",
                "name": "reward",
                "value": value,
                "label": "",
                "trace_id": self.trace,
                "span_id": "",
                "response_id": "",
                "session_id": "",
                "episode_key": "",
                "scored_at": self.now_ns,
                "ingested_at": self.now_ns // 1_000 + 2_000_000,
                "is_deleted": 0,
            }
        )

    def _passes(self, least_ms: int, most_ms: int) -> int:
        """Lets time pass and gives when it began."""
        since_ns = self.now_ns + 1_000_000
        self.now_ns = since_ns + self.random.randrange(least_ms, most_ms) * 1_000_000
        return since_ns

    def _trace_id(self) -> str:
        return f"{self.random.getrandbits(128):032x}"

    def _span_id(self) -> str:
        return f"{self.random.getrandbits(64):016x}"
