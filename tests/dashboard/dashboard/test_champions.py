"""The series of champions and candidates that the chart of a model's decisions draws."""

from datetime import UTC, datetime

import pytest

from spanloop.dashboard.view_models.champions import basis_text, champion_series
from spanloop.foundation.settings.metric import Metric
from spanloop.training.promotion.evidence import Decision, Evidence, Measured
from spanloop.training.promotion.outcome import PromotionOutcome


def decision(
    number: int, outcome: PromotionOutcome, candidate: tuple[str, float], champion: tuple[str, float]
) -> Decision:
    measured = Measured(metric=Metric.SUCCESS, count=100, candidate=candidate[1], champion=champion[1])
    return Decision(
        id=number,
        decided_at=datetime(2026, 1, number, tzinfo=UTC),
        name="m",
        candidate=candidate[0],
        champion=champion[0],
        rule=None,
        outcome=outcome,
        evidence=Evidence(reason=f"reason {number}", measured=measured),
        job_id=None,
    )


def test_the_champion_moves_with_a_promotion_and_a_rollback_only() -> None:
    series = champion_series(
        [
            decision(4, PromotionOutcome.ROLLED_BACK, ("m@v2", 0.3), ("m@v1", 0.5)),
            decision(3, PromotionOutcome.UNDECIDED, ("m@v4", 0.65), ("m@v2", 0.6)),
            decision(2, PromotionOutcome.KEPT, ("m@v3", 0.2), ("m@v2", 0.6)),
            decision(1, PromotionOutcome.PROMOTED, ("m@v2", 0.6), ("m@v1", 0.4)),
        ]
    )
    assert series.select("version", "decision", "value", "champion", "champion_value").rows() == [
        ("m@v1", "champion", 0.4, "m@v1", 0.4),
        ("m@v2", "promoted", 0.6, "m@v2", 0.6),
        ("m@v3", "kept", 0.2, "m@v2", 0.6),
        ("m@v4", "undecided", 0.65, "m@v2", 0.6),
        ("m@v2", "rolled_back", 0.3, "m@v1", 0.5),
    ]
    assert series["look"].to_list() == [0, 1, 2, 3, 4]
    assert series["why"].to_list()[1] == "reason 1"


def test_values_say_what_they_are_means_over() -> None:
    tasks = decision(1, PromotionOutcome.KEPT, ("m@v2", 0.6), ("m@v1", 0.4))
    text = "Each value is a mean over the tasks that both versions attempted (100), not over all episodes of a version."
    assert basis_text([tasks]) == text
    canary = tasks.model_copy(update={"evidence": tasks.evidence.model_copy(update={"canary": "c1"})})
    assert "mean over a canary's sessions (100)" in basis_text([canary])
    assert "attempted or a canary's sessions" in basis_text([tasks, canary])


@pytest.mark.parametrize("decisions", [[], [decision(1, PromotionOutcome.PROMOTED, ("m@v2", 1.0), ("", 0.0))]])
def test_what_compared_nothing_is_no_point(decisions: list[Decision]) -> None:
    nothing = [each.model_copy(update={"evidence": Evidence(reason="none")}) for each in decisions]
    assert champion_series(nothing).is_empty()
