"""Which secret goes to which service."""

from pathlib import Path

import pytest

from spanloop.foundation.keys.service_keys import bearer, service_key
from spanloop.semconv.environment import ServiceAddress


def _token() -> str:
    return "token of this data directory"


def test_a_token_of_this_machine_is_never_sent_to_a_configured_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = ServiceAddress("gateway", "http://127.0.0.1:1", is_configured=False)
    elsewhere = here._replace(is_configured=True)
    assert service_key(here, _token) == _token()
    assert bearer(service_key(elsewhere, _token)) == {}
    (tmp_path / "key").write_text("shared\n")
    monkeypatch.setenv("SPANLOOP_KEY_FILE", str(tmp_path / "key"))
    assert service_key(here, _token) == _token()
    assert bearer(service_key(elsewhere, _token)) == {"Authorization": "Bearer shared"}
