"""The page of alerts: rules, the form, the test button and the history with links to causes."""

import pytest
from streamlit.testing.v1 import AppTest

from spanloop.dashboard import visits
from spanloop.dashboard.visits import Visitor
from spanloop.foundation.control.clock import utc_now
from spanloop.foundation.keys.audit import AuditLog
from spanloop.foundation.keys.users import Role
from spanloop.foundation.paths import DataDir
from spanloop.training.alerts.alert_api import AlertApi
from spanloop.training.alerts.evaluation import look_at_thresholds, readable_rules
from spanloop.training.alerts.measurements import Measurement
from spanloop.training.jobs.database.control_database import ControlDatabase
from spanloop.training.jobs.paths import ControlPaths

from .dashboard_driver import links, open_page, table, text_of


@pytest.fixture
def configured(stopped: DataDir) -> DataDir:
    """Two channels, and no ClickHouse."""
    (stopped.path / "spanloop.toml").write_text(
        '[alerts.channels.ops]\nkind = "slack"\nurl = "http://127.0.0.1:1/of-a-secret-address"\n'
        '[alerts.channels.team]\nkind = "webhook"\nurl_env = "TEAM_URL"\n'
    )
    return stopped


def fire(data_dir: DataDir) -> None:
    database = ControlDatabase(ControlPaths.of(data_dir))
    measured = Measurement(holds=True, detail="failures 60.0% of 10 episodes", link="episodes?outcome=failure")
    look_at_thresholds(database, readable_rules(database), lambda _: measured, now=utc_now())


def press(app: AppTest, key: str) -> AppTest:
    app.button(key=key).click().run()
    assert not app.exception
    return app


def test_a_rule_is_added_and_tested_by_button_and_both_are_audited(configured: DataDir) -> None:
    app = open_page("alerts")
    assert "No rule yet." in text_of(app)
    app.text_input(key="alert_name").set_value("bad-answers")
    app.text_input(key="alert_condition").set_value("reward below 0.5 over 1d")
    app.multiselect(key="alert_channels").set_value(["ops", "team"])
    press(app, "add_alert")
    assert app.query_params["rule"] == "bad-answers"
    (rule,) = AlertApi(configured).rules()
    assert (str(rule.condition), rule.channels) == ("reward below 0.5 over 1d", ("ops", "team"))
    press(app, "test_alert")
    (alert,) = AlertApi(configured).history()
    assert [str(each) for each in alert.deliveries] == ["test to ops: waiting", "test to team: waiting"]
    audited = [(entry.action, entry.object, entry.result) for entry in AuditLog(configured).read()]
    assert audited == [("add alert rule", "bad-answers", "ok"), ("test alert rule", "bad-answers", "ok")]
    assert "No scheduler runs: nothing is alerted." in text_of(app)


def test_the_history_links_to_what_caused_an_alert(configured: DataDir) -> None:
    api = AlertApi(configured)
    api.add("bad", "failures above 50%", ["ops"])
    api.add("good", "job done", ["ops"])
    fire(configured)
    app = open_page("alerts")
    assert table(app)["state"].to_list() == ["firing", "quiet"]
    history = table(app, 1)
    assert (history["state"][0], history["detail"][0]) == ("firing", "failures 60.0% of 10 episodes")
    assert links(app, 1) == ["episodes?outcome=failure"]
    assert "secret" not in str(app)


def test_a_condition_that_cannot_be_read_is_explained_and_adds_nothing(configured: DataDir) -> None:
    app = open_page("alerts")
    app.text_input(key="alert_name").set_value("bad")
    app.text_input(key="alert_condition").set_value("cost above 5 over 1d")
    press(app, "add_alert")
    assert "an unknown price is not zero" in text_of(app)
    assert AlertApi(configured).rules() == ()


def test_a_rule_is_removed_and_its_history_stays(configured: DataDir) -> None:
    AlertApi(configured).add("bad", "failures above 50%", ["ops"])
    fire(configured)
    press(open_page("alerts", rule="bad"), "remove_alert")
    assert AlertApi(configured).rules() == ()
    assert [alert.rule for alert in AlertApi(configured).history()] == ["bad"]


def test_a_viewer_sees_rules_and_history_and_no_button(configured: DataDir, monkeypatch: pytest.MonkeyPatch) -> None:
    AlertApi(configured).add("bad", "failures above 50%", ["ops"])
    fire(configured)
    monkeypatch.setattr(visits, "visitor", lambda: Visitor("eve", Role.VIEWER, "127.0.0.1"))
    app = open_page("alerts", rule="bad")
    assert table(app, 1).height == 1
    assert not {"test_alert", "remove_alert", "add_alert"} & {str(button.key) for button in app.button}


def test_without_a_channel_the_form_says_how_to_configure_one(stopped: DataDir) -> None:
    assert stopped.path.is_dir()
    assert "[alerts.channels.ops]" in text_of(open_page("alerts"))
