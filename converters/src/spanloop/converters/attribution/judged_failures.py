"""A person above the rules: failures that somebody judged get the person's owner and class, or are no failures.

Invariant: what is judged good is no failure of the policy there, and what is judged bad is a failure of the person's
owner, else of the rule's, else of the policy. The evidence names the person and what the rule said. A judged failure
keeps its fingerprint, so that it stays in its group.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from spanloop.converters.enums import FaultOwner
from spanloop.foundation.tables.judged_values import PERSON_RULE, Verdict

from ..judgements import Judgements, PersonJudgement
from ..steps import Episode, Step
from .base import Finding
from .causes import decisive
from .failure import Failure

JUDGED_BAD: Final = "judged_bad"
"""Class of these failures where the person names none."""


class Overruling:
    """The judgements of one episode, applied to its failures."""

    def __init__(self, episode: Episode, judgements: Judgements, *, has_failed: bool) -> None:
        self._episode = episode
        self._judgements = judgements
        self._has_failed = has_failed

    def of_rules(self, failures: Iterable[Failure]) -> list[Failure]:
        """Return the failures of rules as people see them, without those that a person dismissed."""
        if not (self._judgements.steps or self._judgements.failures):
            return list(failures)
        failures = list(failures)
        return [overruled for each in failures if (overruled := self._overruled(each, failures)) is not None]

    def with_judged_steps(self, failures: Sequence[Failure]) -> list[Failure]:
        """Return failures with those of steps that only a person finds bad."""
        added = list(failures)
        for index, judgement in self._judgements.steps.items():
            step = self._episode.steps[index]
            at_step = [each for each in failures if each.step.index == index]
            owners = {each.finding.owner for each in at_step}
            is_known = bool(at_step) if judgement.fault_owner else FaultOwner.POLICY in owners
            if judgement.verdict == Verdict.BAD and not is_known:
                added.append(_of_person(step, judgement, is_recovered=not self._has_failed))
        return sorted(added, key=lambda failure: failure.step.index)

    def of_episode(self, failures: Sequence[Failure]) -> list[Failure]:
        """Return failures of which the one that decided the episode is as the person says."""
        judgement = self._judgements.episode
        if judgement is None or judgement.verdict != Verdict.BAD:
            return list(failures)
        decided_by = decisive(failures)
        if decided_by is None:
            return [*failures, _of_person(self._episode.steps[-1], judgement, is_recovered=False)]
        return [_as_judged(each, judgement) if each is decided_by else each for each in failures]

    def _overruled(self, failure: Failure, failures: Sequence[Failure]) -> Failure | None:
        judgement = self._judgement_of(failure, failures)
        if judgement is not None:
            return None if judgement.verdict == Verdict.GOOD else _as_judged(failure, judgement)
        of_step = self._judgements.steps.get(failure.step.index)
        if of_step is None:
            return failure
        if of_step.verdict == Verdict.GOOD:
            return None if failure.finding.owner is FaultOwner.POLICY else failure
        return _as_judged(failure, of_step)

    def _judgement_of(self, failure: Failure, failures: Sequence[Failure]) -> PersonJudgement | None:
        """Return the judgement of a failure: by its fingerprint, else the only one of the only failure of its span."""
        judgements = self._judgements.failures
        if exact := judgements.get((failure.culprit, failure.fingerprint)):
            return exact
        of_span = [each for (span, _), each in judgements.items() if span == failure.culprit]
        is_alone = sum(each.culprit == failure.culprit for each in failures) == 1
        return of_span[0] if len(of_span) == 1 and is_alone else None


def _as_judged(failure: Failure, judgement: PersonJudgement) -> Failure:
    finding = failure.finding
    owner = FaultOwner(judgement.fault_owner) if judgement.fault_owner else finding.owner
    error_class = judgement.category or finding.error_class
    evidence = finding.evidence | {
        "judgement": _evidence(judgement, rule_owner=str(finding.owner), rule_class=str(finding.error_class))
    }
    judged = Finding(error_class, owner, 1.0, finding.message, evidence)
    return replace(failure, finding=judged, fingerprinted=failure.fingerprinted or finding)


def _of_person(step: Step, judgement: PersonJudgement, *, is_recovered: bool) -> Failure:
    owner = FaultOwner(judgement.fault_owner) if judgement.fault_owner else FaultOwner.POLICY
    message = judgement.comment or f"a person judged the {judgement.scope} bad"
    evidence: dict[str, object] = {"judgement": _evidence(judgement)}
    finding = Finding(judgement.category or JUDGED_BAD, owner, 1.0, message, evidence)
    return Failure(
        step=step,
        trace_id=step.span.trace_id,
        span_id=step.span.span_id,
        tool_name="",
        rule=PERSON_RULE,
        finding=finding,
        is_recovered=is_recovered,
        occurred_ns=step.span.end_ns,
        fingerprinted=replace(finding, message="", evidence={}),
    )


def _evidence(judgement: PersonJudgement, **rule: str) -> dict[str, object]:
    fields = {"id": judgement.judgement_id, "judged_by": judgement.judged_by, "comment": judgement.comment}
    return {name: value for name, value in (fields | rule).items() if value}
