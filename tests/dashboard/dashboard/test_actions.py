"""Each action of a page goes through one place: operators only, and in the audit log."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from spanloop.dashboard import visits
from spanloop.dashboard.components.actions import Action, act
from spanloop.dashboard.components.judging import panel
from spanloop.dashboard.visits import Visitor
from spanloop.foundation.errors import ConfigurationError, JobError, SpanloopError
from spanloop.foundation.keys.audit import AuditLog
from spanloop.foundation.keys.users import Role
from spanloop.foundation.paths import DataDir
from spanloop.store import Store
from spanloop.store.judgements import fetch_judgements
from spanloop.training.run.job_api import JobApi

from .dashboard_driver import button, open_page

DASHBOARD = Path(visits.__file__).parent
CHANGES = {
    "submit",
    "schedule",
    "cancel",
    "retry",
    "pause",
    "resume",
    "unschedule",
    "deploy",
    "promote",
    "roll_back",
    "begin_canary",
    "stop_canary",
    "judge",
    "withdraw",
    "delete_data_set",
}
"""Functions of the packages below with which pages change something."""
NAVIGATION = {"Open its last job"}
"""Labels of the pages' own buttons, besides those that open something."""


def calls_of(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def name_of(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def test_pages_change_things_through_act_alone() -> None:
    found: set[str] = set()
    for path in [*DASHBOARD.glob("pages/*.py"), *DASHBOARD.glob("components/**/*.py")]:
        tree = ast.parse(path.read_text())
        within = {inner for call in calls_of(tree) if name_of(call) == "act" for inner in calls_of(call)}
        for call in calls_of(tree):
            if name_of(call) in CHANGES:
                assert call in within, f"{path.name}:{call.lineno} changes something outside act()"
                found.add(name_of(call))
            if name_of(call) == "button" and ast.unparse(call.func) != "actions.button" and path.stem != "actions":
                label = call.args[0]
                text = str(label.value) if isinstance(label, ast.Constant) else ast.unparse(label)
                assert text in NAVIGATION or "Open episode" in text, f"{path.name}:{call.lineno}: {text}"
    assert found == CHANGES


def as_visitor(monkeypatch: pytest.MonkeyPatch, name: str, role: Role) -> None:
    monkeypatch.setattr(visits, "visitor", lambda: Visitor(name, role, "10.0.0.9"))


def test_an_action_is_audited_with_its_result(stopped: DataDir, monkeypatch: pytest.MonkeyPatch) -> None:
    as_visitor(monkeypatch, "ann", Role.OPERATOR)

    def fail() -> None:
        raise JobError("j2 has ended.")

    assert act(Action.SUBMIT_JOB, "mine@v3", lambda: "j1", describe=lambda job: job) == "j1"
    with pytest.raises(JobError):
        act(Action.CANCEL_JOB, "j2", fail)
    as_visitor(monkeypatch, "vic", Role.VIEWER)
    with pytest.raises(ConfigurationError, match="vic may not cancel job"):
        act(Action.CANCEL_JOB, "j3", fail)
    entries = [entry[2:] for entry in AuditLog(stopped).read()]
    assert entries == [
        ("ann", "operator", "10.0.0.9", "submit job", "mine@v3", "ok", "j1"),
        ("ann", "operator", "10.0.0.9", "cancel job", "j2", "failed", "JobError: j2 has ended."),
        ("vic", "viewer", "10.0.0.9", "cancel job", "j3", "denied", ""),
    ]


def test_a_viewer_who_judges_is_refused_and_nothing_is_stored(
    environment: DataDir, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors: list[SpanloopError] = []
    monkeypatch.setattr(panel, "show_error", errors.append)
    as_visitor(monkeypatch, "vic", Role.VIEWER)
    assert not panel.store_opinion(store, "e1", panel.About("the episode"), {"verdict": "good"})
    (error,) = errors
    assert "vic may not judge: expected an operator" in error.what
    assert "--role operator" in error.next_step
    (entry,) = AuditLog(environment).read()
    assert entry[2:] == ("vic", "viewer", "10.0.0.9", "judge", "e1 the episode", "denied", "")
    assert fetch_judgements(store).is_empty()


def test_an_action_that_cannot_be_audited_does_not_begin(stopped: DataDir, monkeypatch: pytest.MonkeyPatch) -> None:
    as_visitor(monkeypatch, "ann", Role.OPERATOR)
    stopped.audit.mkdir()
    done: list[str] = []
    with pytest.raises(Exception, match="cannot be used"):
        act(Action.CANCEL_JOB, "j1", lambda: done.append("j1"))
    assert done == []


@pytest.mark.usefixtures("seeded")
def test_a_viewer_sees_no_button_of_an_action(seeded_environment: DataDir, monkeypatch: pytest.MonkeyPatch) -> None:
    job = next(job for job in JobApi(seeded_environment).list() if not job.is_finished)
    assert button(open_page("jobs", job=job.id), "Cancel this job")
    as_visitor(monkeypatch, "vic", Role.VIEWER)
    app = open_page("jobs", job=job.id)
    assert not app.exception
    assert [element.label for element in app.button] == []
    listed = open_page("jobs", jobs_view="New job")
    assert not listed.exception
    assert [element.label for element in listed.button] == []
    assert list(listed.button_group(key="jobs_view").options) == ["Jobs", "Schedules"]


def test_a_page_that_no_front_serves_has_a_viewer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert visits.visitor().role is Role.VIEWER
