"""Decide about the canary that runs: promote its candidate, roll it back, or keep the champion.

Invariant: a decision is in the control database before it is carried out, and removed when it is stored. So a
kill in between neither loses a decision nor stores it twice, whichever scheduler goes on, and a decision that somebody
has overtaken is dropped. One process decides at a time, on all machines.
"""

from typing import Final, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from spanloop.foundation.errors import ConfigurationError, JobError
from spanloop.foundation.paths import DataDir
from spanloop.foundation.settings import Promotion
from spanloop.foundation.version_names import CANDIDATE
from spanloop.store import Store
from spanloop.training.jobs.database.control_database import ControlDatabase
from spanloop.training.jobs.leadership import one_at_a_time
from spanloop.training.jobs.paths import ControlPaths
from spanloop.training.models.registry import Registry
from spanloop.training.promotion.canary.gateway_canary import (
    CanaryRequest,
    RunningCanary,
    running_canary,
    served_version,
    start_canary,
    stop_canary,
)
from spanloop.training.promotion.outcome import PromotionOutcome

from ..aliases import Aliases
from ..decisions import Contest, Decisions
from ..evidence import Decision, Judgement
from ..promote import Actions
from .look import CanaryLook, check_rule, look
from .pending_decisions import remove_pending, save_pending, stored_pending

_DECISION: Final = "canary decision"


class CanaryState(NamedTuple):
    """A canary after a look."""

    canary: RunningCanary
    look: CanaryLook
    decision: Decision | None
    """None while it runs."""


class _PendingDecision(BaseModel):
    """A decision that is being carried out."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    canary: str
    candidate: str
    champion: str
    rule: Promotion
    judgement: Judgement


def begin_canary(data_dir: DataDir, request: CanaryRequest, rule: Promotion) -> RunningCanary:
    """Start a canary against the champion; return when its candidate serves. It gets the alias ``candidate``.

    Raises:
        ConfigurationError: The share or the rule cannot be used, or the gateway does not serve the champion.
        JobError: There is no such version, it is the champion, or there is no champion.
        SpanloopError: The candidate cannot be served; the champion serves as before.
    """
    if not request.is_shadow:
        check_rule(rule)
    contest = Decisions(data_dir).contest(request.reference)
    if contest.champion is None:
        raise JobError(
            f"{contest.candidate.reference} has no champion to be compared with.",
            next_step=f"Serve it: spanloop models deploy {contest.candidate.reference}",
        )
    served = served_version(data_dir)
    if served != contest.champion.reference:
        raise ConfigurationError(
            f"The gateway serves {served or 'no model'}, and the champion is {contest.champion.reference}.",
            next_step=f"spanloop models deploy {contest.champion.reference}",
        )
    started = start_canary(data_dir, request._replace(reference=contest.candidate.reference))
    Aliases(data_dir).set(contest.candidate.reference, CANDIDATE)
    return started


def decide_canary(store: Store, data_dir: DataDir, rule: Promotion, actions: Actions) -> CanaryState | None:
    """Look at the canary that runs, and carry out what the rule says; None when none runs or it is a shadow.

    Raises:
        ConfigurationError: A reward is outside of the rule's range.
        JobError: The champion has changed since the canary began.
        SpanloopError: The gateway or ClickHouse is away; the next call continues.
    """
    database = ControlDatabase(ControlPaths.of(data_dir))
    with one_at_a_time(database, _DECISION):
        _finish_interrupted(data_dir, database, actions)
        canary = running_canary(data_dir)
        if canary is None or canary.is_shadow:
            return None
        found = look(store, canary.id, rule)
        if found.judgement.outcome is PromotionOutcome.UNDECIDED:
            return CanaryState(canary, found, None)
        pending = _pending_decision(canary, found, rule)
        save_pending(database, canary.id, pending.model_dump_json())
        return CanaryState(canary, found, _carry_out(data_dir, database, pending, actions))


def _pending_decision(canary: RunningCanary, found: CanaryLook, rule: Promotion) -> _PendingDecision:
    evidence = found.judgement.evidence.model_copy(update={"canary": canary.id})
    judgement = found.judgement.model_copy(update={"evidence": evidence})
    return _PendingDecision(
        canary=canary.id, candidate=canary.candidate, champion=canary.champion, rule=rule, judgement=judgement
    )


def _finish_interrupted(data_dir: DataDir, database: ControlDatabase, actions: Actions) -> None:
    document = stored_pending(database)
    if document is None:
        return
    try:
        pending = _PendingDecision.model_validate_json(document)
    except ValidationError:
        remove_pending(database)  # another version wrote it; the canary still runs, and is judged again
        return
    canary = running_canary(data_dir)
    runs = canary is not None and canary.id == pending.canary
    is_promoted = pending.judgement.outcome is PromotionOutcome.PROMOTED
    if is_promoted and not runs and served_version(data_dir) != pending.candidate:
        remove_pending(database)  # somebody ended the canary meanwhile
        return
    _carry_out(data_dir, database, pending, actions)


def _carry_out(data_dir: DataDir, database: ControlDatabase, pending: _PendingDecision, actions: Actions) -> Decision:
    decisions, registry = Decisions(data_dir), Registry(data_dir)
    earlier = decisions.list(candidate=pending.candidate, limit=10)
    decision = next((each for each in earlier if each.evidence.canary == pending.canary), None)
    if decision is None:
        contest = Contest(registry.get(pending.candidate), registry.get(pending.champion))
        if pending.judgement.outcome is PromotionOutcome.PROMOTED:
            actions.serve(contest.candidate)  # which ends the canary
        canary = running_canary(data_dir)
        if canary is not None and canary.id == pending.canary:
            stop_canary(data_dir, identity=pending.canary)
        try:
            decision = decisions.record(contest, pending.judgement, rule=pending.rule)
        except JobError:
            remove_pending(database)
            raise
    remove_pending(database)
    return decision
