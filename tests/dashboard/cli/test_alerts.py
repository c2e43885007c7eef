"""``spanloop alerts``: the rules, their tests and their history on the command line."""

import pytest
from typer.testing import CliRunner, Result

from spanloop.cli import app as command_tree
from spanloop.cli.services import alerts
from spanloop.foundation.errors import ConfigurationError, NotRunningError, ServiceError
from spanloop.foundation.paths import DataDir
from spanloop.training.alerts.alert_api import AlertApi
from spanloop.training.alerts.watch import watching_alerts

from ...training.alerts.receivers import Posts, web_receiver


@pytest.fixture
def configured(data_dir: DataDir) -> DataDir:
    """A data directory with a channel whose address is a secret, and to which nobody listens."""
    configure(data_dir, "http://127.0.0.1:1/of-a-secret-address")
    return data_dir


def configure(data_dir: DataDir, url: str) -> None:
    (data_dir.path / "spanloop.toml").write_text(f'[alerts.channels.ops]\nkind = "slack"\nurl = "{url}"\n')


def invoke(data_dir: DataDir, *arguments: str) -> Result:
    return CliRunner().invoke(
        command_tree.app, ["alerts", *arguments, "--data-dir", str(data_dir.path)], env={"COLUMNS": "250"}
    )


def text_of(data_dir: DataDir, *arguments: str) -> str:
    completed = invoke(data_dir, *arguments)
    assert completed.exit_code == 0, completed.output
    return " ".join(completed.output.split())


def test_a_rule_is_added_listed_and_removed(configured: DataDir) -> None:
    assert "there is no rule; add one with: spanloop alerts add" in text_of(configured, "list")
    added = text_of(configured, "add", "bad", "--when", "timeout of planner above 5%", "--to", "ops")
    assert "bad: timeout of planner above 5% over 1h, to ops try it: spanloop alerts test bad" in added
    assert "bad timeout of planner above 5% over 1h ops" in text_of(configured, "list")
    assert "nothing was alerted" in text_of(configured, "history")
    assert "bad removed" in text_of(configured, "remove", "bad")
    assert "there is no rule" in text_of(configured, "list")


def test_a_condition_that_cannot_be_read_adds_no_rule(configured: DataDir) -> None:
    refused = invoke(configured, "add", "bad", "--when", "cost above 5", "--to", "ops")
    assert isinstance(refused.exception, ConfigurationError)
    assert "an unknown price is not zero" in refused.exception.what
    assert AlertApi(configured).rules() == ()


def test_a_test_is_received_and_is_in_the_history(configured: DataDir) -> None:
    text_of(configured, "add", "bad", "--when", "job failed", "--to", "ops")
    with web_receiver() as posts, watching_alerts(configured, is_leading=lambda: True, every_s=0.05):
        configure(configured, posts.url)
        assert text_of(configured, "test", "bad") == "test received by ops"
        assert _texts(posts) == ["spanloop: bad is tested: this is a test"]
    history = text_of(configured, "history", "bad")
    assert "this is a test alerts test received by ops" in history
    assert "secret" not in history


def test_a_test_that_is_not_received_says_why(configured: DataDir) -> None:
    text_of(configured, "add", "bad", "--when", "job failed", "--to", "ops")
    with watching_alerts(configured, is_leading=lambda: True, every_s=0.05):
        refused = invoke(configured, "test", "bad")
    assert isinstance(refused.exception, ServiceError)
    assert "not received by ops" in refused.exception.what
    assert "no answer: ConnectError" in refused.output
    assert "secret" not in refused.output


def test_a_test_without_a_scheduler_says_so(configured: DataDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alerts, "_TEST_TIMEOUT_S", 0.1)
    text_of(configured, "add", "bad", "--when", "job failed", "--to", "ops")
    refused = invoke(configured, "test", "bad")
    assert isinstance(refused.exception, NotRunningError)
    assert "spanloop up" in refused.exception.next_step


def _texts(posts: Posts) -> list[str]:
    return [str(document["text"]).partition("\n")[0] for document in posts.documents]
