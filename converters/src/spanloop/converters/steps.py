"""An episode as steps: which agent acted, what its tools answered, what came next.

Invariant: every model call of the group is exactly one step, each after the one that it continues; ``following`` of
a step is the step that continues it, else the next one of its thread. A thread is one agent's conversation: steps
that continue one another, or that share agent, system prompt and first user message.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import msgspec

from .errors.error_texts import AnswerErrors
from .linking import Group, SpanKey, Stitched, inherit
from .linking.continuation import Continuation, Evidence, continues
from .linking.unrecorded_outputs import recover_unrecorded_outputs
from .reading.written_calls import with_written_calls
from .results.observations import with_observed_calls
from .results.step_results import step_results
from .results.tool_results import ToolResult
from .side_calls import conversation_of, side_calls, with_agent_last
from .spans import Span
from .tokens.captures import NO_CAPTURE, Capture
from .tokens.choices import CapturedTokens, later_calls, with_used_choices

Thread = tuple[str, int, tuple[str, ...]]


class Step(msgspec.Struct, frozen=True, gc=False):
    """One action of the policy."""

    index: int
    span: Span
    agent_name: str
    thread: Thread
    continues: int | None
    """Index of the step whose input and output this step's input starts with."""
    previous: int | None
    """``continues``, else the step before in the same thread; None for the first."""
    following: int | None
    results: tuple[ToolResult, ...]
    capture: Capture
    uncalled: tuple[Span, ...] = ()
    """Spans of tools that ran after it and that no model call asked for."""
    evidence: Evidence | None = None
    """Why it continues the step ``continues``; None for the first step of a conversation."""
    continuation: Continuation | None = None
    """The part of the input of the step ``following`` that repeats this one; None without such a step."""

    @property
    def tool_runs(self) -> list[tuple[str, int]]:
        """Name and nanoseconds of each tool that ran: its results, then tools that no model call asked for."""
        of_calls = [(result.name, result.duration_ns) for result in self.results]
        return [*of_calls, *((span.tool_name, span.duration_ns) for span in self.uncalled)]

    @property
    def is_continued(self) -> bool:
        """Whether the next step was sent the answer of this one."""
        return self.continuation is not None and self.continuation.choice == 0

    @property
    def policy_version(self) -> str:
        """``name@version`` of the weights that answered; empty when nobody said."""
        if self.capture.generation is not None and self.capture.generation.policy_version:
            return self.capture.generation.policy_version
        return self.span.response_model if "@" in self.span.response_model else ""

    @property
    def tokenizer(self) -> str:
        """Fingerprint of the tokenizer and chat template of its capture; empty when nobody said."""
        return "" if self.capture.generation is None else self.capture.generation.tokenizer

    @property
    def model(self) -> str:
        """The model that answered, else the one asked for."""
        return self.span.response_model or self.span.request_model


@dataclass(frozen=True)
class Episode:
    """One task attempt."""

    episode_id: str
    episode_key: str
    steps: tuple[Step, ...]
    context: tuple[Span, ...]
    side_steps: frozenset[int] = frozenset()
    """Indices of the steps that are side calls; never the last one."""

    @cached_property
    def first_step(self) -> Step:
        """The agent's first step."""
        return next(step for step in self.steps if step.index not in self.side_steps)

    @cached_property
    def spans(self) -> list[Span]:
        """Every span of the episode."""
        return [*(step.span for step in self.steps), *self.context]

    @cached_property
    def task_id(self) -> str:
        """The smallest task id that a span carries; empty without one."""
        return min((span.task_id for span in self.spans if span.task_id), default="")

    @cached_property
    def session_id(self) -> str:
        """The smallest session id, else conversation id, that a span carries."""
        session_ids = [span.session_id for span in self.spans if span.session_id]
        return min(session_ids or [span.conversation_id for span in self.spans if span.conversation_id], default="")


def build_episode(
    group: Group,
    stitched: Stitched,
    captures: Mapping[SpanKey, Capture],
    tokens: CapturedTokens,
    answer_errors: AnswerErrors,
) -> Episode:
    """Order the group's model calls into steps and attach what belongs to each."""
    side = side_calls(group, stitched.parents)
    calls = recover_unrecorded_outputs(with_agent_last(group.calls, side) if side else group.calls)
    index_of = {call.key: index for index, call in enumerate(calls)}
    agents = _agents(calls, group.context)
    parents = (index_of.get(stitched.parents.get(call.key, ("", ""))) for call in calls)
    above = [_earlier(parent, index) for index, parent in enumerate(parents)]
    threads = _threads(calls, above, agents)
    previous = _previous(above, threads)
    following = _following(above, previous)
    calls, captures = with_used_choices(calls, captures, later_calls(above, following), group.context, tokens)
    calls = with_written_calls(calls, group.context)
    next_calls = [
        (calls[following[index]], continues(call, calls[following[index]])) if index in following else None
        for index, call in enumerate(calls)
    ]
    calls, observed = with_observed_calls(calls, next_calls)
    results, uncalled = step_results(calls, next_calls, group.context, answer_errors, observed)
    steps = tuple(
        Step(
            index=index,
            span=call,
            agent_name=agents[index],
            thread=threads[index],
            continues=above[index],
            previous=previous[index],
            following=following.get(index),
            results=results[index],
            uncalled=uncalled.get(index, ()),
            capture=captures.get(call.key, NO_CAPTURE),
            evidence=None if above[index] is None else stitched.evidence.get(call.key),
            continuation=after[1] if (after := next_calls[index]) else None,
        )
        for index, call in enumerate(calls)
    )
    side_steps = frozenset(index_of[key] for key in side)
    return Episode(group.episode_id, group.episode_key, steps, tuple(group.context), side_steps)


def _earlier(parent: int | None, index: int) -> int | None:
    """A predecessor must come before; one that does not (a cycle of skewed clocks) is none."""
    return parent if parent is not None and parent < index else None


def _agents(calls: Sequence[Span], context: Sequence[Span]) -> list[str]:
    """The agent name of each call: its own, else that of the nearest ancestor in its trace."""
    names = [call.agent_name for call in calls]
    if "" not in names or not any(span.agent_name for span in (*calls, *context)):
        return names
    by_trace: dict[str, list[Span]] = defaultdict(list)
    for span in (*calls, *context):
        by_trace[span.trace_id].append(span)
    nearest = {
        trace_id: inherit(
            {span.span_id: span.parent_span_id for span in members}, {span.span_id: span.agent_name for span in members}
        )
        for trace_id, members in by_trace.items()
    }
    return [nearest[call.trace_id][call.span_id] for call in calls]


def _threads(calls: Sequence[Span], continues: Sequence[int | None], agents: Sequence[str]) -> list[Thread]:
    threads: list[Thread] = []
    rewritten: dict[Thread, Thread] = {}
    for index, call in enumerate(calls):
        above = continues[index]
        if above is None:
            thread = (agents[index], *conversation_of(call))
            threads.append(rewritten.get(thread, thread))
            continue
        threads.append(threads[above])
        if call.history.length == calls[above].history.length:
            # what came since was written into a message, which may be the one that names the thread
            rewritten[(agents[index], *conversation_of(call))] = threads[above]
    return threads


def _previous(continues: Sequence[int | None], threads: Sequence[Thread]) -> list[int | None]:
    newest: dict[Thread, int] = {}
    previous: list[int | None] = []
    for index, thread in enumerate(threads):
        above = continues[index]
        previous.append(newest.get(thread) if above is None else above)
        newest[thread] = index
    return previous


def _following(continues: Sequence[int | None], previous: Sequence[int | None]) -> dict[int, int]:
    following: dict[int, int] = {}
    for links in (continues, previous):
        for index, above in enumerate(links):
            if above is not None:
                following.setdefault(above, index)
    return following
