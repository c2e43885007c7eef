"""Decide about a candidate, and serve it when it is promoted; go back to the champion before.

Invariant: the gateway has confirmed that it serves a version before ``champion`` names it. A kill in between leaves the
aliases as they were, and the same call decides and deploys again.
"""

import os
from collections.abc import Callable
from typing import NamedTuple

from spanloop.foundation.settings import Promotion
from spanloop.store import Store
from spanloop.training.jobs.leases import JobLease
from spanloop.training.jobs.paths import ControlPaths, HasPath
from spanloop.training.models.registry import ModelVersion
from spanloop.training.promotion.deploy import deploy
from spanloop.training.promotion.outcome import PromotionOutcome

from .comparison import by_metric, find_evaluations, task_pairs, with_earlier_look
from .decisions import Contest, Decisions
from .evidence import Decision, Evidence, Judgement
from .judge import judge


class Actions(NamedTuple):
    """What a decision may do besides being stored."""

    data_dir: str | os.PathLike[str] | HasPath
    lease: JobLease | None = None
    """Of the job that decides."""
    deploys: bool = True
    """Serve what is promoted."""
    on_progress: Callable[[str], None] = lambda _: None

    def serve(self, version: ModelVersion) -> None:
        """Let the gateway serve a version.

        Raises:
            SpanloopError: It cannot be served.
        """
        if not self.deploys:
            return
        self.on_progress(f"deploying {version.reference}")
        job_id, token = self.lease or (None, None)
        deploy(ControlPaths.of(self.data_dir).root, version.reference, job_id=job_id, token=token)


def weigh(
    store: Store, contest: Contest, rule: Promotion, *, evaluation: str = "", earlier: tuple[Decision, ...] = ()
) -> Judgement:
    """Return the judgement of a rule on a candidate, from stored evaluations; stores nothing.

    Args:
        store: The store.
        contest: Candidate and champion.
        rule: What must be shown.
        evaluation: Name of the evaluations; empty takes the candidate's newest that the champion has too.
        earlier: Decisions about the candidate, newest first; looks of the same comparison are continued.

    Raises:
        EvaluationError: The versions have no evaluation with the same name, or no task in common.
        ConfigurationError: A reward is outside the rule's range.
    """
    if contest.champion is None:
        reason = "There is no champion that it has to beat."
        return Judgement(outcome=PromotionOutcome.PROMOTED, evidence=Evidence(reason=reason))
    compared = find_evaluations(store, contest.candidate.reference, contest.champion.reference, name=evaluation)
    ids = tuple(each.evaluation_id for each in compared)
    looks = [each for each in earlier if (each.rule, each.evidence.evaluations) == (rule, ids)]
    values = with_earlier_look(task_pairs(store, compared, rule), looks)
    judgement = judge(rule, by_metric(values))
    added = {
        "evaluations": ids,
        "revisions": tuple(each.revision for each in compared),
        "looks": 1 + len(looks),
        "pairs": values,
    }
    return judgement.model_copy(update={"evidence": judgement.evidence.model_copy(update=added)})


def promote(store: Store, reference: str, rule: Promotion, actions: Actions, *, evaluation: str = "") -> Decision:
    """Decide about a candidate now; serve it and let ``champion`` name it when the rule says so.

    A decision on the same evidence as the last one is not stored again.

    Args:
        store: The store.
        reference: The candidate: ``name@version`` or ``name@alias``, or ``name`` for the newest version.
        rule: What must be shown.
        actions: What the decision may do.
        evaluation: Name of the evaluations to compare.

    Raises:
        EvaluationError: The versions have no evaluation with the same name, or no task in common; nothing is stored.
        JobError: There is no such version, it is the champion, or the champion has changed meanwhile.
        SpanloopError: A promoted version cannot be served; nothing is stored.
    """
    decisions = Decisions(actions.data_dir)
    contest = decisions.contest(reference)
    earlier = decisions.list(candidate=contest.candidate.reference)
    judgement = weigh(store, contest, rule, evaluation=evaluation, earlier=earlier)
    if earlier and _is_same(earlier[0], contest, rule, judgement):
        return earlier[0]
    if judgement.outcome is PromotionOutcome.PROMOTED:
        actions.serve(contest.candidate)
    return decisions.record(contest, judgement, rule=rule, lease=actions.lease)


def promote_always(reference: str, actions: Actions) -> Decision:
    """Serve a version and let ``champion`` name it, without a rule.

    Raises:
        SpanloopError: It cannot be served; nothing is stored.
    """
    decisions = Decisions(actions.data_dir)
    contest = decisions.contest(reference)
    actions.serve(contest.candidate)
    evidence = Evidence(reason="It was deployed without asking a rule (--deploy-always).")
    judgement = Judgement(outcome=PromotionOutcome.PROMOTED, evidence=evidence)
    return decisions.record(contest, judgement, rule=None, lease=actions.lease)


def roll_back(name: str, actions: Actions, *, reason: str = "It was rolled back by hand.") -> Decision:
    """Serve the champion before the current one, and let ``champion`` name it.

    Raises:
        JobError: There is no champion before.
        SpanloopError: It cannot be served; nothing is stored.
    """
    decisions = Decisions(actions.data_dir)
    contest = decisions.rollback_target(name)
    return _go_back(
        decisions, contest, actions, Judgement(outcome=PromotionOutcome.ROLLED_BACK, evidence=Evidence(reason=reason))
    )


def roll_back_by_rule(
    store: Store, name: str, rule: Promotion, actions: Actions, *, evaluation: str = ""
) -> Decision | None:
    """Go back to the champion before when stored evaluations show that the current one is worse; None otherwise.

    Raises:
        EvaluationError: The versions have no evaluation with the same name, or no task in common.
        JobError: There is no champion before.
        SpanloopError: It cannot be served; nothing is stored.
    """
    decisions = Decisions(actions.data_dir)
    contest = decisions.rollback_target(name)
    found = weigh(store, contest, rule, evaluation=evaluation).evidence
    worse = found.measured.worse_e_value if found.measured else None
    if worse is None or worse < 1 / rule.alpha:
        return None
    return _go_back(decisions, contest, actions, Judgement(outcome=PromotionOutcome.ROLLED_BACK, evidence=found), rule)


def _go_back(
    decisions: Decisions, contest: Contest, actions: Actions, judgement: Judgement, rule: Promotion | None = None
) -> Decision:
    assert contest.champion is not None  # noqa: S101 - a rollback has a target
    actions.serve(contest.champion)
    return decisions.record(contest, judgement, rule=rule, lease=actions.lease)


def _is_same(last: Decision, contest: Contest, rule: Promotion, judgement: Judgement) -> bool:
    """Whether a decision has nothing new: the same rule and champion, and evaluations that were not computed again."""
    return (
        (last.rule, last.champion, last.outcome) == (rule, contest.champion_reference, judgement.outcome)
        and last.evidence.evaluations == judgement.evidence.evaluations
        and last.evidence.revisions == judgement.evidence.revisions
        and judgement.outcome is not PromotionOutcome.PROMOTED
    )
