"""The API key check that collector and gateway share."""

from http import HTTPStatus

import pytest

from spanloop.foundation.keys.api_keys import KeyRing, Scope, bearer_secret, check_key
from spanloop.foundation.paths import DataDir


@pytest.mark.parametrize(
    ("authorization", "secret"),
    [("Bearer x", "x"), ("bearer  x ", "x"), ("Bearer ", ""), ("", None), ("x", None), ("Basic x", None)],
)
def test_the_secret_of_a_bearer_header(authorization: str, secret: str | None) -> None:
    assert bearer_secret(authorization) == secret


def test_unknown_and_revoked_keys_are_unauthorized_and_a_missing_scope_is_forbidden(data_dir: DataDir) -> None:
    keys = KeyRing(data_dir)
    secret = keys.create("reader", [Scope.READ]).secret
    assert check_key(keys, secret, Scope.READ) is None
    forbidden = check_key(keys, secret, Scope.TRAIN)
    assert forbidden is not None
    assert forbidden.status is HTTPStatus.FORBIDDEN
    assert "reader has the scopes read; expected train" in forbidden.message
    keys.revoke("reader")
    for unknown in ("", "nonsense", secret):
        denied = check_key(keys, unknown, Scope.READ)
        assert denied is not None
        assert denied.status is HTTPStatus.UNAUTHORIZED
