"""Look at rules: one alert for each cause, and one message at its start and its end."""

import pytest
from sqlalchemy.orm import Session

from spanloop.foundation.errors import ConfigurationError, StoreError
from spanloop.training.alerts import evaluation
from spanloop.training.alerts.alert_api import AlertApi
from spanloop.training.alerts.conditions import Threshold
from spanloop.training.alerts.entities import Alert, AlertState, MessageStatus
from spanloop.training.alerts.evaluation import look_at_events, look_at_thresholds, readable_rules
from spanloop.training.alerts.measurements import Measurement
from spanloop.training.alerts.stored_alerts import KEPT_ALERTS
from spanloop.training.jobs.database.control_database import ControlDatabase
from spanloop.training.jobs.database.tables import AlertRuleRow, DecisionRow, JobRow

from ..jobs.support import FakeClock

STATUSES = {True: "failures 60.0% of 10 episodes", False: "failures 10.0% of 10 episodes"}


def look(database: ControlDatabase, clock: FakeClock, *, holds: bool) -> None:
    """Look at the thresholds while their figure is above or below the limit."""
    measured = Measurement(holds, STATUSES[holds], "episodes?outcome=failure")
    look_at_thresholds(database, readable_rules(database), lambda _: measured, now=clock.now)


def statuses(alert: Alert) -> list[tuple[MessageStatus, str]]:
    return [(each.status, each.channel) for each in alert.deliveries]


def add_job(session: Session, job_id: str, state: str, clock: FakeClock, *, attempt: int = 1, error: str = "") -> None:
    row = JobRow(job_id=job_id, spec="{}", state=state, attempt=attempt, created_at=clock.now, error=error)
    row.finished_at = clock.now if state in {"failed", "succeeded", "cancelled"} else None
    session.merge(row)


def test_a_threshold_is_alerted_once_when_it_begins_to_hold_and_once_when_it_ends(
    api: AlertApi, database: ControlDatabase, clock: FakeClock
) -> None:
    api.add("bad", "failures above 50%", ["ops", "mail", "ops"])
    look(database, clock, holds=False)
    assert api.history() == ()
    for _ in range(3):
        look(database, clock, holds=True)
        clock.forward(seconds=1)
    (alert,) = api.history()
    assert (alert.state, alert.detail, alert.link) == (AlertState.FIRING, STATUSES[True], "episodes?outcome=failure")
    assert statuses(alert) == [(MessageStatus.FIRING, "ops"), (MessageStatus.FIRING, "mail")]
    assert set(api.firing()) == {"bad"}
    look(database, clock, holds=False)
    clock.forward(seconds=59)
    look(database, clock, holds=False)
    assert len(api.history()[0].deliveries) == 2
    clock.forward(seconds=1)
    look(database, clock, holds=False)
    look(database, clock, holds=False)
    (alert,) = api.history()
    assert (alert.state, alert.resolved_at) == (AlertState.RESOLVED, clock.now)
    assert statuses(alert)[2:] == [(MessageStatus.RESOLVED, "ops"), (MessageStatus.RESOLVED, "mail")]
    assert alert.deliveries[-1].detail == STATUSES[False]
    assert api.firing() == {}
    clock.forward(seconds=1)
    look(database, clock, holds=True)
    assert [each.state for each in api.history()] == [AlertState.FIRING, AlertState.RESOLVED]


def test_a_figure_that_crosses_its_limit_again_within_a_minute_belongs_to_the_same_alert(
    api: AlertApi, database: ControlDatabase, clock: FakeClock
) -> None:
    api.add("bad", "failures above 50%", ["ops"])
    for number in range(200):
        look(database, clock, holds=number % 2 == 0)
        clock.forward(seconds=40)
    (alert,) = api.history()
    assert statuses(alert) == [(MessageStatus.FIRING, "ops")]


def test_a_rule_that_cannot_be_measured_changes_nothing_and_stops_no_other_rule(
    api: AlertApi, database: ControlDatabase, clock: FakeClock
) -> None:
    api.add("a-broken", "latency above 1s", ["ops"])
    api.add("works", "failures above 50%", ["ops"])

    def measure(condition: Threshold) -> Measurement:
        if condition.statistic:
            raise StoreError("ClickHouse is away")
        return Measurement(holds=True, detail="failures 60.0% of 10 episodes", link="episodes")

    with pytest.raises(StoreError, match="away"):
        look_at_thresholds(database, readable_rules(database), measure, now=clock.now)
    assert [alert.rule for alert in api.history()] == ["works"]


def test_each_end_of_a_job_since_the_rule_was_made_is_alerted_once(
    api: AlertApi, database: ControlDatabase, clock: FakeClock
) -> None:
    with database.write() as session:
        add_job(session, "before", "failed", clock)
    clock.forward(seconds=1)
    api.add("failed", "job failed", ["ops"])
    api.add("ended", "job ended", ["ops"])
    with database.write() as session:
        add_job(session, "one", "failed", clock, error="CUDA\nout of memory")
        add_job(session, "two", "succeeded", clock)
        add_job(session, "three", "running", clock)
    for _ in range(2):
        look_at_events(database, readable_rules(database), now=clock.now)
    assert sorted((alert.rule, alert.detail) for alert in api.history()) == [
        ("ended", "job one failed: CUDA out of memory"),
        ("ended", "job two succeeded"),
        ("failed", "job one failed: CUDA out of memory"),
    ]
    (failed,) = api.history(rule="failed")
    assert (failed.state, failed.link) == (AlertState.HAPPENED, "jobs?job=one")
    assert statuses(failed) == [(MessageStatus.HAPPENED, "ops")]
    # It is retried, and fails again.
    clock.forward(days=3)
    with database.write() as session:
        add_job(session, "one", "failed", clock, attempt=2)
    for _ in range(2):
        look_at_events(database, readable_rules(database), now=clock.now)
    assert len(api.history(rule="failed")) == 2


def test_each_decision_about_a_version_is_alerted_once(
    api: AlertApi, database: ControlDatabase, clock: FakeClock
) -> None:
    api.add("all", "promotion", ["ops"])
    api.add("promoted", "promotion promoted", ["ops"])
    with database.write() as session:
        for verdict in ("promoted", "kept", "rolled_back"):
            row = DecisionRow(decided_at=clock.now, name="m", candidate="m@v2", verdict=verdict, evidence="{}")
            row.champion = "m@v1"
            session.add(row)
            session.flush()
    for _ in range(2):
        look_at_events(database, readable_rules(database), now=clock.now)
    assert [alert.detail for alert in reversed(api.history(rule="all"))] == [
        "m@v2: promoted, compared with m@v1",
        "m@v2: kept, compared with m@v1",
        "m@v2: rolled back, compared with m@v1",
    ]
    (promoted,) = api.history(rule="promoted")
    assert promoted.link == "models?model=m%40v2"


def test_a_removed_rule_sends_nothing_more_and_keeps_its_history(
    api: AlertApi, database: ControlDatabase, clock: FakeClock
) -> None:
    api.add("bad", "failures above 50%", ["ops"])
    look(database, clock, holds=True)
    rules = readable_rules(database)
    api.remove("bad")
    (alert,) = api.history()
    assert (alert.state, alert.deliveries[0].is_open) == (AlertState.RESOLVED, False)
    assert str(alert.deliveries[0]) == "firing to ops given up after 0 attempts: the rule was removed"
    measured = Measurement(holds=True, detail="", link="")
    look_at_thresholds(database, rules, lambda _: measured, now=clock.now)
    assert len(api.history()) == 1
    with pytest.raises(ConfigurationError, match="no alert rule 'bad'"):
        api.remove("bad")


def test_a_rule_needs_a_free_name_and_a_configured_channel(api: AlertApi) -> None:
    api.add("bad", "job failed", ["ops"])
    with pytest.raises(ConfigurationError, match="There is an alert rule 'bad' already"):
        api.add("bad", "job failed", ["ops"])
    with pytest.raises(ConfigurationError, match=r"no channel 'pager'(?s:.*)Use one of ops, mail"):
        api.add("other", "job failed", ["ops", "pager"])
    with pytest.raises(ConfigurationError, match="An alert needs a channel"):
        api.add("other", "job failed", [])
    with pytest.raises(ConfigurationError, match="is no name"):
        api.add("a b", "job failed", ["ops"])


def test_a_rule_of_another_version_is_skipped(api: AlertApi, database: ControlDatabase, clock: FakeClock) -> None:
    api.add("known", "job failed", ["ops"])
    with database.write() as session:
        session.add(AlertRuleRow(name="newer", condition="moon above 5", channels='["ops"]', created_at=clock.now))
    assert [rule.name for rule in readable_rules(database)] == ["known"]


def test_old_alerts_of_a_threshold_are_removed_with_their_messages(
    api: AlertApi, database: ControlDatabase, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert KEPT_ALERTS == 1_000
    monkeypatch.setattr("spanloop.training.alerts.stored_alerts.KEPT_ALERTS", 3)
    api.add("bad", "failures above 50%", ["ops"])
    for _ in range(5):
        look(database, clock, holds=True)
        look(database, clock, holds=False)
        clock.now += evaluation.RECOVERY
        look(database, clock, holds=False)
    assert len(api.history()) == 3
