"""API keys: creation, lookup, revocation, visibility to other processes, and no secret on disk."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from spanloop.foundation.errors import ConfigurationError, DataDirectoryError
from spanloop.foundation.keys.api_keys import KeyRing, Scope
from spanloop.foundation.paths import DataDir


def test_a_key_is_found_by_its_secret_and_by_nothing_else(data_dir: DataDir) -> None:
    ring = KeyRing(data_dir)
    first, second = ring.create("a", [Scope.INGEST]), ring.create("b", [Scope.ADMIN])
    assert ring.find(first.secret) == first.key
    assert ring.find(second.secret) == second.key
    for wrong in ("", first.secret[:-1], first.secret + "x", first.key.id, first.key.sha256, "\ud800"):
        assert ring.find(wrong) is None


def test_a_key_has_its_scopes_and_admin_has_all(data_dir: DataDir) -> None:
    ring = KeyRing(data_dir)
    narrow, wide = ring.create("a", [Scope.SCORE, Scope.SCORE]).key, ring.create("b", [Scope.ADMIN]).key
    assert narrow.scopes == (Scope.SCORE,)
    assert [narrow.allows(scope) for scope in Scope] == [scope is Scope.SCORE for scope in Scope]
    assert all(wide.allows(scope) for scope in Scope)


def test_the_secret_of_a_key_is_not_on_disk(data_dir: DataDir) -> None:
    made = KeyRing(data_dir).create("a", [Scope.INGEST])
    random_part = made.secret.rsplit("_", 1)[-1]
    for path in data_dir.path.rglob("*"):
        if path.is_file():
            assert random_part not in path.read_text()
    assert data_dir.keys.stat().st_mode & 0o777 == 0o600


def test_other_processes_see_changes_at_once(data_dir: DataDir) -> None:
    here, there = KeyRing(data_dir), KeyRing(data_dir)
    assert here.list() == ()
    made = there.create("a", [Scope.INGEST])
    assert here.is_required
    assert here.find(made.secret) == made.key
    there.revoke("a")
    key = here.find(made.secret)
    assert key is not None
    assert not key.allows(Scope.INGEST)


def test_revoking_the_last_key_grants_no_access(data_dir: DataDir) -> None:
    ring = KeyRing(data_dir)
    ring.create("a", [Scope.INGEST])
    assert ring.revoke("a").revoked_at
    assert ring.is_required
    with pytest.raises(ConfigurationError, match="no valid key a to revoke"):
        ring.revoke("a")
    ring.create("a", [Scope.INGEST])
    assert [key.name for key in ring.list()] == ["a", "a"]


def test_keys_created_concurrently_are_all_stored(data_dir: DataDir) -> None:
    with ThreadPoolExecutor(8) as pool:
        running = [pool.submit(KeyRing(data_dir).create, f"k{number}", [Scope.INGEST]) for number in range(24)]
    assert {key.id for key in KeyRing(data_dir).list()} == {each.result().key.id for each in running}


def test_a_name_is_unique_and_a_scope_is_required(data_dir: DataDir) -> None:
    ring = KeyRing(data_dir)
    ring.create("a", [Scope.INGEST])
    with pytest.raises(ConfigurationError, match="a key named a already"):
        ring.create("a", [Scope.INGEST])
    with pytest.raises(ConfigurationError, match="needs a name and a scope"):
        ring.create("b", [])


@pytest.mark.parametrize("text", ["", "{}", '{"keys": [1]}', '{"keys": [{"id": "x"}]}'])
def test_a_damaged_file_is_an_error_and_no_key_is_valid(data_dir: DataDir, text: str) -> None:
    data_dir.keys.write_text(text)
    ring = KeyRing(data_dir)
    assert ring.is_required
    with pytest.raises(DataDirectoryError, match=r"keys\.json cannot be read"):
        ring.find("spanloop_x_y")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file_is_an_error(data_dir: DataDir) -> None:
    KeyRing(data_dir).create("a", [Scope.INGEST])
    data_dir.keys.chmod(0)
    with pytest.raises(DataDirectoryError):
        KeyRing(data_dir).list()
