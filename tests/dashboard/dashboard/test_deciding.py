"""Decisions about versions by button: what the rule says first, and what becomes of each button."""

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from streamlit.testing.v1 import AppTest

from spanloop.foundation.keys.users import Role
from spanloop.foundation.paths import DataDir
from spanloop.foundation.settings.metric import Metric
from spanloop.training.models.registry import Registry
from spanloop.training.promotion.aliases import Aliases
from spanloop.training.promotion.decisions import Decisions
from spanloop.training.promotion.evidence import Decision, Evidence, GuardCheck
from spanloop.training.promotion.outcome import PromotionOutcome

from ...training.gateway_stand_in import GatewayStandIn, gateway_stand_in
from .dashboard_driver import button, open_page, text_of
from .test_actions import as_visitor


@pytest.fixture
def gateway(learned_environment: DataDir) -> Iterator[GatewayStandIn]:
    Aliases(learned_environment).set("demo@v1", "champion")
    with gateway_stand_in(learned_environment) as stand_in:
        stand_in.served = "demo@v1"
        yield stand_in


def open_version(version: str) -> AppTest:
    app = open_page("models", model=version)
    assert not app.exception
    return app


def champion(directory: DataDir) -> str:
    alias = Aliases(directory).find("demo", "champion")
    return "" if alias is None else alias.reference


@pytest.mark.usefixtures("gateway")
def test_a_decision_by_the_rule_takes_two_clicks_and_the_last_promotion_is_taken_back(
    learned_environment: DataDir,
) -> None:
    app = open_version("demo@v3")
    text = text_of(app)
    assert "The rule would say :green[▲ promoted]" in text
    assert Decisions(learned_environment).list() == ()
    button(app, "Decide by the rule").click().run()
    assert not app.exception
    assert [each.value for each in app.error] == []
    (decision,) = Decisions(learned_environment).list()
    assert (decision.outcome, decision.candidate, decision.champion) == (
        PromotionOutcome.PROMOTED,
        "demo@v3",
        "demo@v1",
    )
    assert decision.evidence.reason in text.replace("\\", "")
    assert champion(learned_environment) == "demo@v3"
    button(open_version("demo@v3"), "Take the promotion back: serve demo@v1").click().run()
    assert champion(learned_environment) == "demo@v1"


def draw_equal_guards(decision: "Decision") -> None:
    from spanloop.dashboard.components.promotion import decisions  # noqa: PLC0415 - the source is the whole script

    decisions.show_evidence(decision.evidence, decision.candidate, decision.champion, decision.rule)
    decisions.show([decision, decision])


def test_equal_guards_of_several_decisions_are_drawn_on_one_page() -> None:
    guard = GuardCheck(metric=Metric.CRASHES, limit="at_most 0.25", holds=True, candidate=0.0, champion=0.0)
    decision = Decision(
        id=1,
        decided_at=datetime(2026, 1, 2, tzinfo=UTC),
        name="m",
        candidate="m@v2",
        champion="m@v1",
        rule=None,
        outcome=PromotionOutcome.UNDECIDED,
        evidence=Evidence(reason="Not enough to decide.", guards=(guard,)),
        job_id=None,
    )
    app = AppTest.from_function(draw_equal_guards, default_timeout=60, args=(decision,)).run()
    assert not app.exception
    assert text_of(app).count("Not enough to decide.") == 3


@pytest.mark.usefixtures("gateway")
def test_a_version_without_an_evaluation_says_what_is_missing(learned_environment: DataDir) -> None:
    registry = Registry(learned_environment)
    new = registry.add("demo", registry.get("demo@v3").path).reference
    app = open_version(new)
    assert "The rule cannot decide yet." in text_of(app)
    (commands,) = (each.value for each in app.code if "evaluate" in each.value)
    option = f"--name NAME --run RUN --data-dir {learned_environment.path}"
    assert commands == f"spanloop evaluate {new} {option}\nspanloop evaluate demo@v1 {option}"
    assert button(app, "Decide by the rule").disabled


@pytest.mark.usefixtures("learned")
def test_without_a_gateway_nothing_can_be_decided(learned_environment: DataDir) -> None:
    Aliases(learned_environment).set("demo@v1", "champion")
    app = open_version("demo@v3")
    assert [button(app, label).disabled for label in ("Decide by the rule", "Start it")] == [True, True]
    assert [button(app, label).help for label in ("Decide by the rule", "Start it")] == [
        "The gateway does not run."
    ] * 2


def test_a_canary_is_started_with_its_share(learned_environment: DataDir, gateway: GatewayStandIn) -> None:
    app = open_version("demo@v3")
    app.number_input(key="canary_share").set_value(0.25)
    button(app, "Start it").click().run()
    assert not app.exception
    assert [each.value for each in app.error] == []
    (body,) = [body for path, body in gateway.asked if path == "canary"]
    assert (body["name"], body["version"], body["share"]) == ("demo", "v3", 0.25)
    alias = Aliases(learned_environment).find("demo", "candidate")
    assert alias is not None
    assert alias.reference == "demo@v3"


@pytest.mark.usefixtures("gateway")
def test_a_viewer_reads_the_evidence_and_sees_no_button(monkeypatch: pytest.MonkeyPatch) -> None:
    as_visitor(monkeypatch, "vic", Role.VIEWER)
    app = open_version("demo@v3")
    assert "The rule would say" in text_of(app)
    assert [element.label for element in app.button] == []
