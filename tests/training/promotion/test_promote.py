"""Decisions from stored evaluations: what is stored, which aliases move, what the gateway is asked to serve."""

from collections.abc import Sequence

import pytest

from spanloop.evaluation.results import NOTHING_TRAINED, EvaluationError, TrainedTasks, evaluate
from spanloop.foundation.errors import ConfigurationError, JobError, NotRunningError, ServiceError
from spanloop.foundation.paths import DataDir
from spanloop.foundation.settings import Promotion
from spanloop.store import Store
from spanloop.training.models.registry import ModelVersion, Registry
from spanloop.training.promotion.aliases import Aliases
from spanloop.training.promotion.decisions import Decisions
from spanloop.training.promotion.outcome import PromotionOutcome
from spanloop.training.promotion.promote import Actions, promote, promote_always, roll_back, roll_back_by_rule

from ..evaluation_seeding import RunAttempt, seed_run
from ..gateway_stand_in import GatewayStandIn

RULE = Promotion(min_tasks=20, max_tasks=60)


def attempted(store: Store, model: str, outcomes: str, *, first: int = 0, state: str = "finished") -> None:
    """Task by task: 1 succeeded, 0 failed."""
    seed_run(
        store,
        [
            RunAttempt(f"run of {model} {first}", f"task-{first + number:03}", model, float(digit), state=state)
            for number, digit in enumerate(outcomes)
        ],
    )
    measured(store, model)


def measured(store: Store, model: str, *, name: str = "test", trained: TrainedTasks = NOTHING_TRAINED) -> None:
    evaluate(store, name=name, model=model, trained=trained, allow_training_tasks=True)


def served(gateway: GatewayStandIn) -> Sequence[str]:
    return [f"{body['name']}@{body['version']}" for path, body in gateway.asked if path == "deploy"]


def aliases(data_dir: DataDir) -> dict[str, str]:
    return {alias.alias: alias.reference for alias in Aliases(data_dir).list("m")}


def test_a_better_version_is_served_and_becomes_the_champion_with_its_evidence(
    store: Store, data_dir: DataDir, registry: Registry, gateway: GatewayStandIn
) -> None:
    Aliases(data_dir).set("m@v1", "champion")
    attempted(store, "m@v1", "0" * 30)
    attempted(store, "m@v2", "1" * 25 + "0" * 5)
    decision = promote(store, "m@v2", RULE, Actions(data_dir))
    assert (decision.outcome, decision.candidate, decision.champion) == (PromotionOutcome.PROMOTED, "m@v2", "m@v1")
    assert decision.rule == RULE
    assert decision.evidence.evaluations == ("test:m@v2", "test:m@v1")
    assert len(decision.evidence.pairs) == 30
    assert Decisions(data_dir).list("m") == (decision,)
    assert served(gateway) == ["m@v2"]
    assert aliases(data_dir) == {"champion": "m@v2"}
    assert registry.get("m@champion").version == "v2"
    deployed = registry.deployed()
    assert deployed is not None
    assert deployed.reference == "m@v2"


@pytest.mark.usefixtures("registry")
def test_an_undecided_version_is_the_candidate_and_later_looks_continue(
    store: Store, data_dir: DataDir, gateway: GatewayStandIn
) -> None:
    Aliases(data_dir).set("m@v1", "champion")
    attempted(store, "m@v1", "01" * 10)
    attempted(store, "m@v2", "11" * 5 + "01" * 5)
    first = promote(store, "m@v2", RULE, Actions(data_dir))
    assert (first.outcome, first.evidence.looks) == (PromotionOutcome.UNDECIDED, 1)
    assert aliases(data_dir) == {"champion": "m@v1", "candidate": "m@v2"}
    assert promote(store, "m@candidate", RULE, Actions(data_dir)) == first  # nothing new, nothing stored

    # further attempts at tasks that were counted change nothing that was seen; new tasks count
    seed_run(store, [RunAttempt("again", f"task-{number:03}", "m@v2", 0.0) for number in range(20)])
    attempted(store, "m@v1", "0" * 20, first=20)
    attempted(store, "m@v2", "1" * 20, first=20)
    second = promote(store, "m@v2", RULE, Actions(data_dir))
    assert (second.outcome, second.evidence.looks) == (PromotionOutcome.PROMOTED, 2)
    assert second.evidence.measured is not None
    assert (second.evidence.measured.count, second.evidence.measured.wins) == (40, 25)
    assert {task: second.evidence.pairs[task] for task in first.evidence.pairs} == first.evidence.pairs
    assert aliases(data_dir) == {"champion": "m@v2"}
    assert [each.id for each in Decisions(data_dir).list()] == [second.id, first.id]
    assert served(gateway) == ["m@v2"]


def test_a_version_that_is_not_better_leaves_the_champion_and_serves_nothing(
    store: Store, data_dir: DataDir, registry: Registry, gateway: GatewayStandIn
) -> None:
    registry.record_deployment("m@v1")
    attempted(store, "m@v1", "01" * 30)
    attempted(store, "m@v2", "01" * 30)
    decision = promote(store, "m@v2", RULE, Actions(data_dir))
    assert decision.outcome is PromotionOutcome.KEPT
    assert aliases(data_dir) == {"champion": "m@v1"}  # it was compared as the champion
    assert served(gateway) == []


def test_a_version_that_crashes_in_half_of_its_attempts_is_kept_out(
    store: Store, data_dir: DataDir, registry: Registry
) -> None:
    Aliases(data_dir).set("m@v1", "champion")
    attempted(store, "m@v1", "0" * 60)
    attempted(store, "m@v2", "1" * 30)
    attempted(store, "m@v2", "1" * 30, first=30, state="crashed")
    decision = promote(store, "m@v2", RULE, Actions(data_dir))
    assert decision.outcome is PromotionOutcome.KEPT
    assert "crashes at_most 0.25" in decision.evidence.reason
    (guard,) = decision.evidence.guards
    assert (guard.candidate, guard.holds) == (0.5, False)
    assert registry.get("m@champion").reference == "m@v1"


@pytest.mark.usefixtures("registry")
def test_tasks_of_the_training_are_never_compared(store: Store, data_dir: DataDir) -> None:
    attempted(store, "m@v1", "0" * 30)
    attempted(store, "m@v2", "1" * 30)
    measured(store, "m@v2", trained=TrainedTasks(ids=frozenset(f"task-{number:03}" for number in range(25))))
    decision = promote(store, "m@v2", RULE, Actions(data_dir, deploys=False))
    assert decision.champion == "m@v1"  # its parent, because nothing else is known
    assert decision.outcome is PromotionOutcome.UNDECIDED
    assert len(decision.evidence.pairs) == 5


def test_what_cannot_be_compared_is_said_and_nothing_is_stored(
    store: Store, data_dir: DataDir, registry: Registry
) -> None:
    Aliases(data_dir).set("m@v1", "champion")
    with pytest.raises(
        EvaluationError, match="no evaluation with the same name: m@v2 has none, m@v1 has none"
    ) as caught:
        promote(store, "m@v2", RULE, Actions(data_dir))
    assert "spanloop evaluate m@v2" in caught.value.next_step
    attempted(store, "m@v1", "1" * 5)
    attempted(store, "m@v2", "1" * 5, first=10)
    with pytest.raises(EvaluationError, match=r"test:m@v2 and test:m@v1 have no task in common"):
        promote(store, "m@v2", RULE, Actions(data_dir))
    with pytest.raises(JobError, match="m@v1 is the champion"):
        promote(store, "m@champion", RULE, Actions(data_dir))
    assert Decisions(data_dir).list() == ()
    assert registry.deployments() == ()


@pytest.mark.usefixtures("registry")
def test_a_version_that_cannot_be_served_is_not_promoted(store: Store, data_dir: DataDir) -> None:
    Aliases(data_dir).set("m@v1", "champion")
    attempted(store, "m@v1", "0" * 30)
    attempted(store, "m@v2", "1" * 30)
    with pytest.raises(NotRunningError):
        promote(store, "m@v2", RULE, Actions(data_dir))
    assert (aliases(data_dir), Decisions(data_dir).list()) == ({"champion": "m@v1"}, ())
    without_serving = promote(store, "m@v2", RULE, Actions(data_dir, deploys=False))
    assert without_serving.outcome is PromotionOutcome.PROMOTED
    assert aliases(data_dir) == {"champion": "m@v2"}


@pytest.mark.usefixtures("registry")
def test_a_decision_about_a_champion_that_was_replaced_meanwhile_changes_nothing(
    store: Store, data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    Aliases(data_dir).set("m@v1", "champion")
    attempted(store, "m@v1", "0" * 30)
    attempted(store, "m@v2", "1" * 30)

    def serve(_actions: Actions, _version: ModelVersion) -> None:
        Aliases(data_dir).set("m@v3", "champion")

    monkeypatch.setattr(Actions, "serve", serve)
    with pytest.raises(JobError, match="changed meanwhile: got m@v3, expected m@v1"):
        promote(store, "m@v2", RULE, Actions(data_dir))
    assert aliases(data_dir) == {"champion": "m@v3"}
    assert Decisions(data_dir).list() == ()


def test_rollbacks_go_back_one_champion_at_a_time(
    data_dir: DataDir, registry: Registry, gateway: GatewayStandIn
) -> None:
    actions = Actions(data_dir)
    registry.record_deployment("m@v1")
    for version in ("m@v2", "m@v3"):
        assert promote_always(version, actions).outcome is PromotionOutcome.PROMOTED
    assert roll_back("m", actions).champion == "m@v2"
    assert aliases(data_dir) == {"champion": "m@v2"}
    promote_always("m@v4", actions)
    for expected in ("m@v2", "m@v1"):
        decision = roll_back("m", actions)
        assert (decision.outcome, decision.champion) == (PromotionOutcome.ROLLED_BACK, expected)
        assert aliases(data_dir) == {"champion": expected}
    assert served(gateway) == ["m@v2", "m@v3", "m@v2", "m@v4", "m@v2", "m@v1"]
    with pytest.raises(JobError, match="m@v1 is its champion, and there was none before"):
        roll_back("m", actions)
    with pytest.raises(JobError, match="it has no champion"):
        roll_back("nothing", actions)


def test_a_rollback_that_the_gateway_refuses_leaves_the_champion(
    data_dir: DataDir, registry: Registry, gateway: GatewayStandIn
) -> None:
    registry.record_deployment("m@v1")
    promote_always("m@v2", Actions(data_dir))
    gateway.refusals["deploy"] = (500, "no memory")
    with pytest.raises(ServiceError, match="no memory"):
        roll_back("m", Actions(data_dir))
    assert aliases(data_dir) == {"champion": "m@v2"}


def test_the_rule_rolls_back_a_champion_that_evaluations_show_to_be_worse(
    store: Store, data_dir: DataDir, registry: Registry, gateway: GatewayStandIn
) -> None:
    registry.record_deployment("m@v1")
    promote_always("m@v2", Actions(data_dir))
    attempted(store, "m@v1", "01" * 10)
    attempted(store, "m@v2", "01" * 10)
    assert roll_back_by_rule(store, "m", RULE, Actions(data_dir)) is None
    attempted(store, "m@v1", "1" * 25, first=20)
    attempted(store, "m@v2", "0" * 25, first=20)
    decision = roll_back_by_rule(store, "m", RULE, Actions(data_dir))
    assert decision is not None
    assert (decision.outcome, decision.rule) == (PromotionOutcome.ROLLED_BACK, RULE)
    assert decision.evidence.measured is not None
    assert decision.evidence.measured.difference == pytest.approx(-25 / 45)
    assert aliases(data_dir) == {"champion": "m@v1"}
    assert served(gateway) == ["m@v2", "m@v1"]


def test_aliases_are_references_and_move_only_to_what_there_is(data_dir: DataDir, registry: Registry) -> None:
    found = Aliases(data_dir)
    assert found.set("m@v2", "nightly").reference == "m@v2"
    assert found.set("m@v3", "nightly").rolls_back_to == "m@v2"
    assert registry.get("m@nightly").version == "v3"
    assert [version.reference for version in registry.lineage("m@nightly")] == ["m@v1", "m@v2", "m@v3"]
    with pytest.raises(JobError, match=r"no alias 'champion'; its aliases: nightly \(v3\)"):
        registry.get("m@champion")
    with pytest.raises(JobError, match="no model version 'm@v9'"):
        found.set("m@v9", "nightly")
    for wrong in ("v7", "", "a b", "@x"):
        with pytest.raises(ConfigurationError, match="cannot be an alias"):
            found.set("m@v1", wrong)
    found.remove("m", "nightly")
    assert found.list() == ()
    with pytest.raises(JobError, match="no alias 'nightly'"):
        found.remove("m", "nightly")
