"""``spanloop users`` and ``spanloop audit``."""

import json
from pathlib import Path

import pytest
import typer
from argon2 import PasswordHasher
from typer.testing import CliRunner

from spanloop.cli.services import audit, users
from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.keys import users as users_module
from spanloop.foundation.keys.audit import OK, AuditLog
from spanloop.foundation.keys.users import Role, Users
from spanloop.foundation.paths import DataDir
from spanloop.semconv.environment import DATA_DIR_ENV

PASSWORD = "four random words"


@pytest.fixture(autouse=True)
def _here(data_dir: DataDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(users_module, "_HASHER", PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))
    monkeypatch.setenv(DATA_DIR_ENV, str(data_dir.path))
    monkeypatch.setenv("COLUMNS", "200")


def run(*arguments: str, given: str = "", app: typer.Typer = users.app) -> str:
    result = CliRunner().invoke(app, arguments, input=given, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_a_password_comes_by_prompt_file_or_standard_input(data_dir: DataDir, tmp_path: Path) -> None:
    asked = run("create", "ann", "--role", "operator", given=f"{PASSWORD}\n{PASSWORD}\n")
    assert PASSWORD not in asked
    assert "from now on the dashboard" in asked
    (tmp_path / "password").write_text(f"{PASSWORD} 2\r\n")
    run("create", "bob", "--role", "viewer", "--password-file", str(tmp_path / "password"))
    run("password", "ann", "--password-file", "-", given=f"{PASSWORD} 3\n")
    ring = Users(data_dir)
    assert [(user.name, user.role) for user in ring.list()] == [("ann", Role.OPERATOR), ("bob", Role.VIEWER)]
    assert ring.verify("ann", f"{PASSWORD} 3")
    assert ring.verify("bob", f"{PASSWORD} 2")
    run("remove", "bob")
    assert [user.name for user in ring.list()] == ["ann"]


def test_an_unknown_role_and_a_missing_file_are_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="root") as unknown:
        run("create", "ann", "--role", "root")
    assert unknown.value.next_step == "A role is one of viewer, operator."
    with pytest.raises(ConfigurationError, match="cannot be read from"):
        run("create", "ann", "--role", "viewer", "--password-file", str(tmp_path / "none"))


def test_the_audit_log_is_listed(data_dir: DataDir, capsys: pytest.CaptureFixture[str]) -> None:
    log = AuditLog(data_dir)
    for user, job in (("ann", "j1"), ("bob", "j2"), ("ann", "j3")):
        log.add(user=user, role="operator", address="::1", action="cancel job", object_=job, result=OK)
    audit.audit(limit=1, user="ann", as_json=True)
    assert json.loads(capsys.readouterr().out)["object"] == "j3"
    audit.audit()
    assert [line.split()[-2:] for line in capsys.readouterr().out.splitlines()[1:]] == [
        ["j1", "ok"],
        ["j2", "ok"],
        ["j3", "ok"],
    ]
