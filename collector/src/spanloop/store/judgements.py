"""Judgements: what a person says about an episode, a step or a failure.

Invariant: a judgement is never changed. Saying something else, and taking it back, adds a version; of one person and
target the newest version counts. A version names the revision that the person saw, and what the rules said there.
"""

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from typing import Annotated, NamedTuple, Self

import polars as pl
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, model_validator

from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.tables.judged_values import PERSON_RULE, FaultOwner, Scope, Verdict
from spanloop.foundation.tables.judgements import JUDGEMENTS
from spanloop.semconv.scores import SCORE_RANGE, is_valid_score

from .store import Store


class Target(NamedTuple):
    """An episode, a step or a failure as a person saw it in one revision, with the verdict of the rules."""

    episode_id: str
    revision: int
    scope: Scope
    step: int
    trace_id: str
    span_id: str
    fingerprint: str = ""
    rule: str = ""
    """The rule of the failure, or of the failure that decided the episode; empty without one."""
    rule_owner: str = ""
    rule_class: str = ""
    rule_outcome: str = ""

    @property
    def key(self) -> tuple[str, str, str, str]:
        """The identity of the target in all revisions: scope, trace, span and fingerprint."""
        return self.scope.value, self.trace_id, self.span_id, self.fingerprint


def _valid_number(value: float) -> float:
    if not is_valid_score(value):
        raise ValueError(f"got {value!r}, expected {SCORE_RANGE}")
    return value


def _known_owner(owner: str) -> str:
    if owner and owner not in set(FaultOwner):
        raise ValueError(f"got {owner!r}, expected one of {', '.join(FaultOwner)}")
    return owner


_Text = Annotated[str, StringConstraints(max_length=200, strip_whitespace=True)]
_Prose = Annotated[str, StringConstraints(max_length=100_000)]


class Opinion(BaseModel):
    """A person's judgement of a target, before it is stored."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    verdict: Verdict | None = None
    """``good``: nothing is wrong here; ``bad``: something is. Without a verdict, an owner implies ``bad``."""
    fault_owner: Annotated[_Text, AfterValidator(_known_owner)] = ""
    """The owner of the failure, in place of the rule's."""
    category: _Text = ""
    """A class of failure; the episode is marked with it."""
    number: Annotated[float, AfterValidator(_valid_number), Field(strict=True)] | None = None
    """The reward of the episode or step, in place of any other."""
    correction: _Prose = ""
    """The answer that would have been right."""
    comment: _Prose = ""

    @model_validator(mode="after")
    def _check_fields(self) -> Self:
        if self == type(self).model_construct():
            raise ValueError("a judgement says nothing: expected a verdict, owner, category, number, text or comment")
        if self.fault_owner and self.verdict is Verdict.GOOD:
            raise ValueError("what is good has no fault owner: expected verdict bad, or no owner")
        return self

    @property
    def stated_verdict(self) -> str:
        """The verdict, as it counts."""
        return Verdict.BAD.value if self.fault_owner else self.verdict.value if self.verdict else ""


def judge(store: Store, target: Target, opinion: Opinion, *, judged_by: str, judged_ns: int | None = None) -> str:
    """Store a version of a person's judgement; return its id. The pipeline converts the episode again.

    Raises:
        ConfigurationError: A failure is judged by a number.
        StoreError: ClickHouse rejected the row or is unreachable; judge again.
    """
    if target.scope is Scope.FAILURE and opinion.number is not None:
        raise ConfigurationError(
            "A failure has no reward, so a number says nothing about it.",
            next_step="Judge the episode or the step by the number.",
        )
    fields = opinion.model_dump(mode="json") | {"verdict": opinion.stated_verdict}
    return _add(store, target, fields, judged_by, judged_ns)


def withdraw(store: Store, judgement_ids: Sequence[str], *, judged_ns: int | None = None) -> None:
    """Take judgements back; the pipeline converts their episodes again.

    Raises:
        ConfigurationError: An id is unknown; nothing is taken back.
        StoreError: ClickHouse is unreachable.
    """
    rows = store.query("judgements_by_id", judgement_ids=list(judgement_ids)).to_dicts()
    missing = sorted(set(judgement_ids) - {row["judgement_id"] for row in rows})
    if missing:
        raise ConfigurationError(
            f"There is no judgement {', '.join(missing)}.", next_step="spanloop judge list shows all ids."
        )
    for row in rows:
        target = Target(**{name: row[name] for name in Target._fields})._replace(scope=Scope(row["scope"]))
        _add(store, target, {"is_withdrawn": 1}, row["judged_by"], judged_ns)


def fetch_judgements(
    store: Store, *, trace_ids: Sequence[str] = (), episode_ids: Sequence[str] = (), limit: int = 100_000
) -> pl.DataFrame:
    """Return the judgements that count, newest first: one row for each person and target; without ids those of all."""
    return store.query("judgements_current", trace_ids=list(trace_ids), episode_ids=list(episode_ids), max_rows=limit)


def compare_with_rules(store: Store, rule: str = "", *, limit: int = 100_000) -> pl.DataFrame:
    """Return the judgements that a rule's verdict can be compared with, disagreements first: ``differs`` tells them.

    ``rule_name`` is the rule, ``outcome`` for an episode that no failure decided, or ``no failure`` for a step.
    """
    return store.query("judgements_compared", rule=rule, max_rows=limit)


def count_by_rule(store: Store) -> pl.DataFrame:
    """Return ``rule``, ``judged``, ``agreed``, ``disagreed`` and ``newest``, most disagreements first."""
    differs = pl.col("differs").cast(pl.Boolean)
    return (
        compare_with_rules(store)
        .group_by(pl.col("rule_name").alias("rule"))
        .agg(
            pl.len().alias("judged"),
            (~differs).sum().alias("agreed"),
            differs.sum().alias("disagreed"),
            pl.col("judged_at").max().alias("newest"),
        )
        .sort("disagreed", "judged", "rule", descending=[True, True, False])
    )


def find_target(store: Store, episode_id: str, *, step: int | None = None, failure: int | None = None) -> Target:
    """Return an episode, or a step or failure of it, as it is now.

    Args:
        store: The store.
        episode_id: The episode.
        step: A step of it.
        failure: The number of a failure of it, as the page and ``spanloop judge show`` count them.

    Raises:
        ConfigurationError: There is no such episode, step or failure.
    """
    if step is not None and failure is not None:
        raise ConfigurationError("Judge a step or a failure, not both.", next_step="Leave one of them out.")
    current = store.query("judgements_episode", episode_id=episode_id, step=step or 0)
    if current.is_empty():
        raise ConfigurationError(
            f"The store has no episode {episode_id!r} with a step {step or 0}.",
            next_step="Copy the whole id from the dashboard. A new episode is converted within seconds.",
        )
    row = current.row(0, named=True)
    target = Target(
        episode_id, row["revision"], Scope.EPISODE, 0, row["trace_id"], row["span_id"], rule_outcome=row["outcome"]
    )
    failures = store.query("judgements_failures", episode_id=episode_id, revision=row["revision"]).to_dicts()
    if step is not None:
        target = target._replace(scope=Scope.STEP, step=step)
        seen = next((each for each in failures if each["step"] == step), None)
    elif failure is not None:
        seen = next((each for each in failures if each["failure_id"] == f"{episode_id}/{failure}"), None)
        if seen is None:
            raise ConfigurationError(
                f"Episode {episode_id!r} has no failure {failure}; it has {len(failures)}.",
                next_step=f"spanloop judge show {episode_id} lists them.",
            )
        if seen["rule"] == PERSON_RULE:
            raise ConfigurationError(
                f"Failure {failure} of episode {episode_id!r} is a person's own.",
                next_step="Take that judgement back: spanloop judge list, then spanloop judge undo ID.",
            )
        names = ("step", "trace_id", "span_id", "fingerprint")
        target = target._replace(scope=Scope.FAILURE, **{name: seen[name] for name in names})
    else:
        decided = (row["error_class"], row["fault_owner"])
        seen = next((each for each in failures if (each["error_class"], each["fault_owner"]) == decided), None)
    if seen is not None:
        target = target._replace(rule=seen["rule"], rule_owner=seen["fault_owner"], rule_class=seen["error_class"])
    return _without_judgements(store, target)


def _without_judgements(store: Store, target: Target) -> Target:
    """Return the target with the rules' first verdict: later revisions show the person's words."""
    earlier = store.query("judgements_first", trace_id=target.trace_id, span_id=target.span_id, scope=target.scope)
    same = [row for row in earlier.to_dicts() if row["fingerprint"] == target.fingerprint]
    if not same:
        return target
    return target._replace(**{name: same[0][name] for name in ("rule", "rule_owner", "rule_class", "rule_outcome")})


def _add(store: Store, target: Target, fields: Mapping[str, object], judged_by: str, judged_ns: int | None) -> str:
    row = target._asdict() | dict(fields) | {"judged_by": judged_by, "judged_at": judged_ns or time.time_ns()}
    key = hashlib.blake2b(json.dumps(row, sort_keys=True).encode(), digest_size=16).hexdigest()
    store.insert(JUDGEMENTS.name, JUDGEMENTS.from_dicts([row | {"judgement_id": key}]))
    return key
