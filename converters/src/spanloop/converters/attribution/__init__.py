"""Failures of an episode: what went wrong, whose fault it was, and whether the episode got over it.

Invariant: one failure at most for each model call and for each tool call, by the first rule of the registry that
sees one; what no single call shows is added by the rules that look at the episode. Only what decided the episode is
unrecovered.
"""

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property, lru_cache
from typing import Final, cast

from msgspec.structs import replace

from spanloop.converters.enums import FaultOwner
from spanloop.messages import parse_json

from ..judgements import NO_JUDGEMENTS, Judgements
from ..linking import SpanKey
from ..reading.finish_reasons import LENGTH, STOP, TOOL_CALL
from ..spans import Span, SpanKind
from ..steps import Episode, Step
from .base import (
    EndingRule,
    EpisodeRule,
    ErrorClass,
    Finding,
    LocatedFinding,
    ModelCallRule,
    Rule,
    Rules,
    ToolCallContext,
    ToolCallRule,
)
from .broken_output import has_unrecorded_end, is_incomplete
from .causes import deciding_chain, decisive, with_chains
from .crash import is_after_answer
from .failure import Failure
from .failure_dedup import deduplicated, nearest_above, with_messages_from_above
from .judge import Ask, AskedJudge, LlmJudge
from .judged_failures import Overruling
from .loading import DEFAULT, RULE_POINT, attribution_rules
from .recovery import RecoveryFacts, made_progress, recovery_facts
from .tool_calls.bad_call import SchemaSigns, schema_signs, schema_violation

RULES: Final = attribution_rules([DEFAULT])
"""In order of precedence. A rule of your own: ``RULES._replace(tool_calls=(Mine(), *RULES.tool_calls))``."""

VALUE_RULES: Final = frozenset({"hallucinated_arguments", "corrected_arguments"})
"""Rules of arguments that have the right form and the wrong content."""


def attribute(
    episode: Episode,
    *,
    has_failed: bool,
    reward: float | None,
    rules: Rules = RULES,
    judgements: Judgements = NO_JUDGEMENTS,
) -> tuple[Failure, ...]:
    """The failures of ``episode`` in the order of its steps.

    Args:
        episode: Its steps and spans.
        has_failed: Whether the reward says that the episode failed.
        reward: The episode's reward, for the evidence.
        rules: What is looked for.
        judgements: What people say; it stands above the rules.
    """
    overruling = Overruling(episode, judgements, has_failed=has_failed)
    facts = _Facts(episode, has_failed=has_failed)
    failures: list[Failure] = []
    of_tools: dict[tuple[str, str], Failure] = {}
    rules_without_sign = Rules(
        tuple(rule for rule in rules.model_calls if not rule.needs_sign),
        tuple(rule for rule in rules.tool_calls if not rule.needs_sign),
        (),
        (),
    )
    for step in episode.steps:
        has_sign = not _is_in_order(step)
        if has_sign or rules_without_sign.model_calls:
            failures += _of_call(step, facts, rules if has_sign else rules_without_sign)
        if rules_without_sign.tool_calls or not _are_calls_in_order(step):
            for context, is_suspect in _tool_calls(step, facts, asks_all=bool(rules_without_sign.tool_calls)):
                for failure in _of_tool(context, facts, rules if is_suspect else rules_without_sign):
                    failures.append(failure)
                    of_tools |= {context.tool.key: failure} if context.tool is not None else {}
    if failures:
        failures = with_messages_from_above(deduplicated(failures, of_tools, episode), episode)
        if episode.side_steps:
            failures = [
                replace(failure, is_recovered=True) if failure.step.index in episode.side_steps else failure
                for failure in failures
            ]
    failures += _of_episode(facts, rules, {(*failure.culprit, failure.finding.error_class) for failure in failures})
    failures.sort(key=lambda failure: failure.step.index)
    failures = overruling.with_judged_steps(overruling.of_rules(failures))
    if has_failed:
        failures += overruling.of_rules(_of_ending(episode, reward, rules, failures))
        failures.sort(key=lambda failure: failure.step.index)
    return with_chains(episode, overruling.of_episode(failures), reward)


class _Facts:
    """Facts about an episode as a whole, computed when a rule first needs them."""

    def __init__(self, episode: Episode, *, has_failed: bool) -> None:
        self.episode: Final = episode
        self._has_failed = has_failed

    @cached_property
    def recovery(self) -> RecoveryFacts:
        return recovery_facts(self.episode, has_failed=self._has_failed)

    @cached_property
    def failed_within(self) -> dict[SpanKey, tuple[Span, ...]]:
        """Tool → the failed spans below it that are no calls of their own."""
        failed = [span for span in self.episode.context if span.has_failed and span.kind is SpanKind.OTHER]
        above = nearest_above(self.episode.spans, self.tools) if failed else {}
        failed_below: dict[SpanKey, tuple[Span, ...]] = {}
        for span in failed:
            if span.key in above:
                failed_below[above[span.key]] = (*failed_below.get(above[span.key], ()), span)
        return failed_below

    @cached_property
    def agent_names(self) -> frozenset[str]:
        """Agents of the episode, in lower case."""
        names = {step.agent_name for step in self.episode.steps} | {span.agent_name for span in self.episode.context}
        return frozenset(name.casefold() for name in names if name)

    @cached_property
    def tools(self) -> dict[tuple[str, str], Span]:
        return {span.key: span for span in self.episode.context if span.kind is SpanKind.TOOL}


def _is_in_order(step: Step) -> bool:
    """Whether nothing about a model call needs a look: it called tools, without an error and with a finish reason."""
    span = step.span
    has_calls = bool(span.output) and bool(span.output[0].tool_calls)
    has_finished = span.finish_reason in _FINISHED or (not span.finish_reason and not span.is_streaming)
    return has_calls and has_finished and not span.has_failed and step.capture.problem is None


def _are_calls_in_order(step: Step) -> bool:
    """Whether each tool call has fitting arguments, an offered tool and a result without an error."""
    calls = step.span.output[0].tool_calls if step.span.output else ()
    if not calls:
        return True
    if len(step.results) != len(calls) or True in [result.is_error for result in step.results]:
        return False
    offered, signs = offered_tools(step.span.tools), _signs(step.span.tools)
    for call in calls:
        sign = signs.get(call.name)
        is_known = not offered or call.name in offered
        if not call.is_valid or not is_known or (sign is not None and sign.may_break(call.arguments)):
            return False
    return True


_FINISHED: Final = frozenset({STOP, TOOL_CALL})


def _of_call(step: Step, facts: _Facts, rules: Rules) -> Iterator[Failure]:
    for rule in rules.model_calls:
        finding = rule.find(step)
        if finding is not None:
            yield _failure(step, rule.name, finding, is_recovered=facts.recovery.recovered_call(step, finding))
            return


def _tool_calls(step: Step, facts: _Facts, *, asks_all: bool) -> Iterator[tuple[ToolCallContext, bool]]:
    """The tool calls that a rule looks at, and whether something about each shows that it may have failed."""
    calls = step.span.output[0].tool_calls if step.span.output else ()
    if not calls:
        return
    declared, hosted = offered_tools(step.span.tools), _hosted(step)
    signs = _signs(step.span.tools)
    results = {result.position: result for result in step.results}
    is_looked_at = False
    for position, call in enumerate(calls):
        result = results.get(position)
        # A provider lists the tools that it runs itself, not the request.
        offered = {} if call.id in hosted else declared
        is_known = not offered or call.name in offered
        sign = None if call.id in hosted else signs.get(call.name)
        violation = ""
        if sign is not None and call.is_valid and sign.may_break(call.arguments):
            violation = schema_violation(call.arguments, offered[call.name], allows_conversion=True)
        is_suspect = bool(violation) or result is None or result.is_error or not call.is_valid or not is_known
        if not (is_suspect or asks_all):
            continue
        if not is_looked_at and (step.span.has_failed or is_incomplete(step)):
            return
        is_looked_at = True
        if not call.is_valid and step.span.finish_reason == LENGTH:
            continue  # what cut the answer cut the arguments
        tool = facts.tools.get((result.trace_id, result.span_id)) if result else None
        is_error = result is not None and result.is_error
        is_wrong = is_error or bool(violation)
        corrected = facts.recovery.corrected_arguments(step, call.name, call.arguments) if is_wrong else ""
        is_continued = result is None and step.is_continued
        within = facts.failed_within.get(tool.key, ()) if is_error and tool is not None else ()
        names = frozenset[str]() if is_known else facts.agent_names
        context = ToolCallContext(step, call, result, tool, offered, is_continued, corrected, within, names, violation)
        yield context, is_suspect


def _hosted(step: Step) -> frozenset[str]:
    """Ids of the calls that are answered within the action: tools that the provider ran."""
    return frozenset(response.id for response in step.span.output[0].tool_responses)


def _has_final_text(step: Step) -> bool:
    return step.span.finish_reason == STOP and bool(step.span.output[0].text.strip())


def _of_tool(context: ToolCallContext, facts: _Facts, rules: Rules) -> Iterator[Failure]:
    for rule in rules.tool_calls:
        finding = rule.find(context)
        if finding is not None:
            is_known = not context.offered or context.call.name in context.offered
            recovered = facts.recovery.recovered_tool(context.step, context.call.name, finding, is_known=is_known)
            # The tool answered, and nothing says that the answer is an error: the mistake is noted and decides nothing.
            is_answered = context.result is not None and not context.result.is_error
            recovered |= is_answered and bool(context.violation) and finding.owner is FaultOwner.POLICY
            recovered = recovered or (context.call.id in _hosted(context.step) and _has_final_text(context.step))
            yield _failure(context.step, rule.name, finding, is_recovered=recovered, context=context)
            return


def _of_episode(facts: _Facts, rules: Rules, known: AbstractSet[tuple[str, str, str]]) -> Iterator[Failure]:
    """Yield the findings of episode rules, without those of (trace, span, class) in ``known``."""
    episode = facts.episode
    seen = [(rule.name, located) for rule in rules.episodes for located in rule.find(episode)]
    if not seen:
        return
    recovery = facts.recovery
    newest_ns = max(step.span.start_ns for step in episode.steps)
    is_of_tools = any(located.culprit.kind is SpanKind.TOOL for _, located in seen)
    worked_ns = _last_worked(episode) if is_of_tools else {}
    for rule, located in seen:
        culprit = located.culprit
        if (*culprit.key, located.finding.error_class) in known:
            continue
        if is_after_answer(culprit, episode):
            yield _located_failure(located, rule, is_recovered=True)
            continue
        went_on = newest_ns >= culprit.end_ns and recovery.went_on(located.step)
        is_broken = culprit.kind is SpanKind.TOOL and worked_ns.get(culprit.tool_name, -1) < culprit.end_ns
        is_lasting = is_broken or located.finding.owner is FaultOwner.POLICY
        recovered = went_on and not (recovery.has_failed and is_lasting)
        yield _located_failure(located, rule, is_recovered=recovered)


def _last_worked(episode: Episode) -> dict[str, int]:
    """Tool → when its last call began that worked."""
    begun_ns: dict[str, int] = {}
    for span in episode.context:
        if span.kind is SpanKind.TOOL and not span.has_failed:
            begun_ns[span.tool_name] = max(span.start_ns, begun_ns.get(span.tool_name, -1))
    return begun_ns


def _of_ending(episode: Episode, reward: float | None, rules: Rules, failures: Sequence[Failure]) -> list[Failure]:
    """Return the first ending rule's finding; events before an open failure explain nothing."""
    known = {failure.finding.error_class for failure in failures if not failure.is_recovered}
    since = max((_step_of_fault(failure) for failure in failures if not failure.is_recovered), default=-1)
    had_worked = any(step.results and made_progress(step) for step in episode.steps[since + 1 :])
    for rule in rules.endings:
        if known and not (rule.is_choice or (rule.is_event and had_worked)):
            continue
        located = rule.find(episode, reward)
        if located is None or located.finding.error_class in known or located.step.index < since:
            continue
        return [_located_failure(located, rule.name, is_recovered=False)]
    return []


def _step_of_fault(failure: Failure) -> int:
    """That turns ran out is no fault that came after others: what used them up is looked for all the same."""
    return -1 if failure.finding.error_class == ErrorClass.STEP_LIMIT else failure.step.index


def _located_failure(located: LocatedFinding, rule: str, *, is_recovered: bool) -> Failure:
    return Failure(
        step=located.step,
        trace_id=located.culprit.trace_id,
        span_id=located.culprit.span_id,
        tool_name=located.tool_name,
        rule=rule,
        finding=located.finding,
        is_recovered=is_recovered,
        occurred_ns=located.culprit.end_ns,
    )


def _failure(
    step: Step, rule: str, finding: Finding, *, is_recovered: bool, context: ToolCallContext | None = None
) -> Failure:
    result = context.result if context else None
    in_tool = result is not None and bool(result.span_id) and finding.owner is not FaultOwner.POLICY
    return Failure(
        step=step,
        trace_id=result.trace_id if result and in_tool else step.span.trace_id,
        span_id=result.span_id if result and in_tool else step.span.span_id,
        tool_name=context.call.name if context else "",
        rule=rule,
        finding=finding,
        is_recovered=is_recovered,
        occurred_ns=step.span.end_ns,
    )


_SERVERS: Final = frozenset({"mcp", "mcp_server", "mcp_toolset"})
"""Types of definitions that stand for all tools of a server; a definition without a name is called by its type."""


@lru_cache(maxsize=256)
def _signs(tools: str) -> dict[str, SchemaSigns]:
    return {name: schema_signs(schema) for name, schema in offered_tools(tools).items() if schema}


@lru_cache(maxsize=256)
def offered_tools(tools: str) -> dict[str, dict[str, object]]:
    """Tool name → JSON schema of its parameters, out of a canonical list of tool definitions.

    Empty where a definition stands for a server: the names of the tools behind it are not known.
    """
    definitions = cast("list[dict[str, object]]", parse_json(tools))
    if any(definition.get("name") in _SERVERS and "parameters" not in definition for definition in definitions):
        return {}
    schemas: dict[str, dict[str, object]] = {}
    for definition in definitions:
        parameters = definition.get("parameters")
        if isinstance(definition.get("name"), str):
            schema = cast("dict[str, object]", parameters) if isinstance(parameters, dict) else {}
            schemas[str(definition["name"])] = schema
    return schemas


__all__ = [
    "RULES",
    "RULE_POINT",
    "VALUE_RULES",
    "Ask",
    "AskedJudge",
    "EndingRule",
    "EpisodeRule",
    "ErrorClass",
    "Failure",
    "Finding",
    "LlmJudge",
    "LocatedFinding",
    "ModelCallRule",
    "Rule",
    "Rules",
    "ToolCallContext",
    "ToolCallRule",
    "attribute",
    "attribution_rules",
    "deciding_chain",
    "decisive",
    "has_unrecorded_end",
    "is_incomplete",
    "offered_tools",
]
