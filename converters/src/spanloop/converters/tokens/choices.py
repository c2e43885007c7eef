"""Find which choice of a model call the program used, where the request had several (``n`` > 1).

Invariant: the first message of a call's output, its finish reason and its capture are those of one choice: the one that
later calls show, else the one whose tool calls ran. Where nothing shows a choice, or several are shown, the call gets
the problem ``ambiguous_choice``. Choices with equal text and tool calls are one action, of which the first choice
counts: what the program did cannot depend on a difference that it did not see, so the tokens of each of them are an
unbiased sample of that action.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple, cast

import polars as pl
from msgspec.structs import replace

from spanloop.converters.enums import UntrainableReason
from spanloop.messages import Message

from ..linking.continuation import continues
from ..reading.finish_reasons import STOP, TOOL_CALL, canonical_finish_reason
from ..spans import Problem, Span, SpanKind
from .captures import NO_CAPTURE, Capture, Generation

SpanKey = tuple[str, str]

_Action = tuple[object, ...]
"""Text and tool calls of a choice: what the program sees of it."""


class CapturedTokens:
    """The token ids of captures: which choice the prompt of a later call goes on from.

    Args:
        tokens: ``Generations.tokens``.
    """

    def __init__(self, tokens: pl.DataFrame) -> None:
        self._prompts, self._responses = tokens["prompt_token_ids"], tokens["response_token_ids"]

    def are_equal(self, choices: Sequence[Generation]) -> bool:
        """Whether the same token ids were sampled in all of ``choices``."""
        first, *others = (self._responses[choice.row] for choice in choices)
        return all(first.equals(other) for other in others)

    def continued_choice(self, choices: Sequence[Generation], after: Generation | None) -> Generation | None:
        """The choice whose prompt and response the prompt of ``after`` begins with, the longest of several."""
        if after is None or not choices:
            return None
        prompt = self._prompts[after.row]
        continued = [
            choice
            for choice in choices
            if choice.response_tokens and self._whole(choice).equals(prompt.head(len(self._whole(choice))))
        ]
        return max(continued, key=lambda choice: choice.response_tokens, default=None)

    def _whole(self, choice: Generation) -> pl.Series:
        prompt, response = (cast("pl.Series", ids[choice.row]) for ids in (self._prompts, self._responses))
        return pl.concat([prompt, response])


def with_used_choices(
    calls: Sequence[Span],
    captures: Mapping[SpanKey, Capture],
    next_calls: Mapping[int, Sequence[int]],
    context: Sequence[Span],
    tokens: CapturedTokens,
) -> tuple[Sequence[Span], Mapping[SpanKey, Capture]]:
    """The calls of an episode and their captures, each with the choice first that the program used.

    Args:
        calls: The model calls of the episode.
        captures: Model call → the capture of its first choice.
        next_calls: Place in ``calls`` → places of the calls that continue it, else of the next one of its thread.
        context: The other spans of the episode.
        tokens: Of all captures.
    """
    several = [
        place
        for place, call in enumerate(calls)
        if len(call.output) > 1 or (call.output and captures.get(call.key, NO_CAPTURE).choices)
    ]
    if not several:
        return calls, captures
    run_ids = _run_ids(calls, context)
    used_calls, used_captures = list(calls), dict(captures)
    for place in several:
        call = calls[place]
        choices = _Choices(call, captures.get(call.key, NO_CAPTURE), run_ids.get(call.key, frozenset()), tokens)
        afters = [(calls[after], captures.get(calls[after].key, NO_CAPTURE)) for after in next_calls.get(place, ())]
        used_calls[place], used_captures[call.key] = choices.used(afters)
    return used_calls, used_captures


def _run_ids(calls: Sequence[Span], context: Sequence[Span]) -> dict[SpanKey, frozenset[str]]:
    """Model call → the ids of its tool calls that spans of tools tell of; an id that two calls gave tells nothing."""
    ran = {span.tool_call_id for span in context if span.kind is SpanKind.TOOL and span.tool_call_id}
    ids = {call.key: _ids(call.output) & ran for call in calls} if ran else {}
    counts = Counter(identity for call_ids in ids.values() for identity in call_ids)
    return {key: frozenset(identity for identity in call_ids if counts[identity] == 1) for key, call_ids in ids.items()}


def _ids(messages: Iterable[Message]) -> set[str]:
    """The ids of tool calls, and of answers to them."""
    ids: set[str] = set()
    for message in messages:
        ids.update(call.id for call in message.tool_calls)
        ids.update(response.id for response in message.tool_responses)
    return ids - {""}


class _Used(NamedTuple):
    """A choice that was used."""

    message: Message
    choice_index: int | None
    """Index of the choice in the response; None where nothing shows it."""


class _Choices:
    """The choices of one call, as its span and its captures have them.

    A span may have fewer than the gateway captured: some instrumentors record the first one only.
    """

    def __init__(self, call: Span, capture: Capture, run_ids: frozenset[str], tokens: CapturedTokens) -> None:
        self._call, self._capture, self._run_ids, self._tokens = call, capture, run_ids, tokens
        self._actions = [_action(message) for message in call.output]
        self._is_recorded = len(call.output) >= capture.choice_count
        """Whether the span has the text of every choice."""

    def used(self, afters: Sequence[tuple[Span, Capture]]) -> tuple[Span, Capture]:
        """The call and its capture with the used choice first; with the problem ``ambiguous_choice`` where unknown."""
        shown: dict[_Action, _Used] = {}
        for after, capture in afters:
            for used in self._shown(after, capture):
                shown.setdefault(_action(used.message), used)
        if not shown:
            ran = [place for place in range(len(self._actions)) if self._unique_ids[place] & self._run_ids]
            shown = {self._actions[place]: self._recorded(place) for place in reversed(ran)}
        if not shown and self._are_equal:
            shown = {self._actions[0]: self._recorded(0)}
        if len(shown) == 1:
            return self._with(next(iter(shown.values())))
        return self._ambiguous(len(shown)), self._capture

    def _shown(self, after: Span, capture: Capture) -> list[_Used]:
        """The choices that a later call shows, by the strongest evidence that there is."""
        if not self._is_recorded and (continued := self._continued_index(capture)) is not None:
            return self._continued(continued, after)
        places = self._by_history(after) or self._by_ids(after) or self._by_content(after)
        if places or not self._is_recorded:
            return [self._recorded(place, after) for place in places]
        continued = self._continued_index(capture)
        return [] if continued is None else [_Used(self._call.output[continued], continued)]

    def _continued_index(self, after: Capture) -> int | None:
        """The choice that the captured prompt of a later call goes on from, token for token."""
        continued = self._tokens.continued_choice(self._capture.choices, after.generation)
        return None if continued is None else continued.choice_index

    def _by_history(self, after: Span) -> list[int]:
        """The choice with which the history of ``after`` goes on from the input of the call."""
        choice = continues(self._call, after).choice
        return [] if choice is None else [choice]

    def _by_ids(self, after: Span) -> list[int]:
        """The choices whose tool calls ``after`` has or answers, by an id that no other choice and no input has."""
        ids = _ids(after.input)
        return [place for place, choice_ids in enumerate(self._unique_ids) if choice_ids & ids]

    def _by_content(self, after: Span) -> list[int]:
        """The choices whose text and tool calls a new message of the model in ``after`` has."""
        actions = {_action(message) for message in _news(self._call, after) if message.role == "assistant"}
        return [place for place, action in enumerate(self._actions) if action in actions]

    def _continued(self, index: int, after: Span) -> list[_Used]:
        """A captured choice of which the history of ``after`` has the text; the span need not have it."""
        if index == 0 and len(self._call.output) == 1:
            return [_Used(self._call.output[0], index)]
        continuation = continues(self._call, after)
        if not continuation.repeats_input or continuation.new_messages[0].role != "assistant":
            return []
        answer = continuation.new_messages[0]
        recorded = next((message for message in self._call.output if _action(message) == _action(answer)), answer)
        return [_Used(recorded, index)]

    def _recorded(self, place: int, after: Span | None = None) -> _Used:
        """A choice of the span: of several with the same action the one with the ids of ``after``, else the first."""
        alike = [other for other, action in enumerate(self._actions) if action == self._actions[place]]
        ids = _ids(after.input) if after is not None else self._run_ids
        place = next((other for other in alike if self._unique_ids[other] & ids), alike[0])
        is_aligned = len(self._call.output) in {1, self._capture.choice_count} or not self._capture.choices
        return _Used(self._call.output[place], place if is_aligned else None)

    @cached_property
    def _unique_ids(self) -> list[set[str]]:
        """For each choice the ids of its tool calls that neither another choice nor the input has."""
        counts = Counter(identity for message in self._call.output for identity in _ids((message,)))
        known = _ids(self._call.input)
        return [
            {identity for identity in _ids((message,)) if counts[identity] == 1 and identity not in known}
            for message in self._call.output
        ]

    @property
    def _are_equal(self) -> bool:
        """Whether all choices are one action."""
        if self._is_recorded:
            return len(set(self._actions)) == 1
        is_whole = len(self._capture.choices) == self._capture.choice_count
        return is_whole and len(self._call.output) == 1 and self._tokens.are_equal(self._capture.choices)

    def _with(self, used: _Used) -> tuple[Span, Capture]:
        call, capture = self._call, self._capture
        others = list(call.output)
        if used.message in others:
            others.remove(used.message)
        output = (used.message, *others)
        if used.choice_index is None:
            capture = capture.without_generation()
        elif capture.choices:
            capture = capture.of_choice(call, used.choice_index)
        elif used.choice_index:
            capture = capture.without_generation()
        return replace(
            call,
            output=output,
            finish_reason=_finish_reason(call, used, capture.generation),
        ), capture

    def _ambiguous(self, shown: int) -> Span:
        call = self._call
        count = max(len(call.output), self._capture.choice_count)
        evidence = (
            f"later calls and tools show {shown} of them" if shown else "no later call and no tool shows one of them"
        )
        detail = f"span {call.span_id}: {count} choices, and {evidence}, expected the one that the program used"
        return replace(call, problem=call.problem or Problem(UntrainableReason.AMBIGUOUS_CHOICE, detail))


def _action(message: Message) -> _Action:
    """Text and tool calls of a choice, which the program sees; thoughts and ids do not count."""
    calls = tuple((call.name, call.arguments) for call in message.tool_calls)
    text = message.text.strip()
    return (text, calls) if text or calls else (message.content,)


def _news(call: Span, after: Span) -> Sequence[Message]:
    """The messages of ``after`` that ``call`` was not sent."""
    continuation = continues(call, after)
    if continuation.repeats_input:
        return continuation.new_messages
    known = {message.content for message in call.input}
    return [message for message in after.input if message.content not in known]


def _finish_reason(call: Span, used: _Used, generation: Generation | None) -> str:
    """The finish reason of the used choice; that of the call is the first choice's."""
    if used.message is call.output[0] and call.finish_reason:
        return call.finish_reason
    reason = canonical_finish_reason(used.message.finish_reason)
    if not reason and generation is not None:
        reason = canonical_finish_reason(generation.finish_reason)
    if reason:
        return reason
    if used.message.tool_calls:
        return TOOL_CALL
    return STOP if call.finish_reason == TOOL_CALL else call.finish_reason


def later_calls(continues: Sequence[int | None], following: Mapping[int, int]) -> dict[int, list[int]]:
    """Place of a call → places of the calls that continue it, else of the one that follows it in its thread."""
    later: dict[int, list[int]] = defaultdict(list)
    for place, above in enumerate(continues):
        if above is not None:
            later[above].append(place)
    for place, after in following.items():
        if place not in later:
            later[place] = [after]
    return later
