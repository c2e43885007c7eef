"""The dashboard's users: argon2 hashes, roles, and a login that stays required."""
# pyright: reportPrivateUsage=false

import pytest
from argon2 import PasswordHasher, extract_parameters

from spanloop.foundation.errors import ConfigurationError, DataDirectoryError
from spanloop.foundation.keys import users as users_module
from spanloop.foundation.keys.users import MIN_PASSWORD_CHARACTERS, Role, Users
from spanloop.foundation.paths import DataDir

PASSWORD = "four random words"


@pytest.fixture(autouse=True)
def _cheap_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    hasher = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
    monkeypatch.setattr(users_module, "_HASHER", hasher)
    monkeypatch.setattr(users_module, "_DUMMY_HASH", hasher.hash("nobody's"))


def test_a_password_is_stored_as_an_argon2id_hash_only(data_dir: DataDir) -> None:
    users = Users(data_dir)
    assert not users.is_required
    users.create("ann", Role.OPERATOR, PASSWORD)
    assert data_dir.users.stat().st_mode & 0o777 == 0o600
    for path in data_dir.path.rglob("*"):
        assert not path.is_file() or PASSWORD not in path.read_text()
    assert users.list()[0].password_hash.startswith("$argon2id$")


def test_only_the_right_password_of_the_user_is_accepted(data_dir: DataDir) -> None:
    users, elsewhere = Users(data_dir), Users(data_dir)
    ann = users.create("ann", Role.VIEWER, PASSWORD)
    users.create("bob", Role.OPERATOR, PASSWORD + "!")
    assert elsewhere.verify("ann", PASSWORD) == ann
    for name, password in (("ann", PASSWORD + "!"), ("ann", ""), ("bob", PASSWORD), ("eve", PASSWORD), ("", "")):
        assert elsewhere.verify(name, password) is None
    users.set_password("ann", "other random words")
    assert elsewhere.verify("ann", PASSWORD) is None
    assert elsewhere.verify("ann", "other random words") is not None


def test_removing_the_last_user_grants_no_access(data_dir: DataDir) -> None:
    users = Users(data_dir)
    users.create("ann", Role.VIEWER, PASSWORD)
    users.remove("ann")
    assert users.is_required
    assert users.verify("ann", PASSWORD) is None
    for change in (lambda: users.remove("ann"), lambda: users.set_password("ann", PASSWORD)):
        with pytest.raises(ConfigurationError, match="no user named ann"):
            change()


@pytest.mark.parametrize("name", ["", "-ann", "a b", "ann\n", "x" * 65, "<b>"])
def test_a_malformed_name_is_refused(data_dir: DataDir, name: str) -> None:
    with pytest.raises(ConfigurationError, match="no user name"):
        Users(data_dir).create(name, Role.VIEWER, PASSWORD)
    assert not Users(data_dir).is_required


def test_a_short_password_and_a_taken_name_are_refused(data_dir: DataDir) -> None:
    users = Users(data_dir)
    with pytest.raises(ConfigurationError, match=f"expected {MIN_PASSWORD_CHARACTERS} to"):
        users.create("ann", Role.VIEWER, "short")
    users.create("ann", Role.VIEWER, PASSWORD)
    with pytest.raises(ConfigurationError, match="a user named ann already"):
        users.create("ann", Role.OPERATOR, PASSWORD)


@pytest.mark.parametrize("text", ["", "{}", '{"users": [{"name": "ann", "role": "root"}]}'])
def test_a_damaged_file_is_an_error_and_nobody_may_log_in(data_dir: DataDir, text: str) -> None:
    data_dir.users.write_text(text)
    users = Users(data_dir)
    assert users.is_required
    with pytest.raises(DataDirectoryError, match=r"users\.json cannot be read"):
        users.verify("ann", PASSWORD)


def test_hashes_cost_what_the_library_recommends(monkeypatch: pytest.MonkeyPatch, data_dir: DataDir) -> None:
    monkeypatch.undo()
    stored = Users(data_dir).create("ann", Role.VIEWER, PASSWORD).password_hash
    parameters = extract_parameters(stored)
    assert parameters == extract_parameters(users_module._DUMMY_HASH)
    assert (parameters.memory_cost, parameters.time_cost) == (65536, 3)
