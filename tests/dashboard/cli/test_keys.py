"""``spanloop keys``."""

from .support import Run


def test_a_key_is_shown_once_listed_and_revoked(spanloop: Run) -> None:
    assert "no keys" in spanloop("keys", "list").stderr
    made = spanloop("keys", "create", "laptop", "--scope", "ingest", "--scope", "score")
    secret = made.stdout.strip()
    assert secret.startswith("spanloop_")
    assert f"authorization=Bearer%20{secret}" in made.stderr
    listed = spanloop("keys", "list")
    assert "laptop" in listed.stdout
    assert "ingest, score" in listed.stdout
    assert secret not in listed.stdout + listed.stderr
    assert spanloop("keys", "revoke", "laptop").returncode == 0
    assert spanloop("keys", "revoke", "laptop").returncode == 2


def test_an_unknown_scope_is_said(spanloop: Run) -> None:
    completed = spanloop("keys", "create", "laptop", "--scope", "fly")
    assert completed.returncode == 2
    assert "ingest, score, serve, read, ask, train, admin" in completed.stderr
    assert "no keys" in spanloop("keys", "list").stderr


def test_a_key_that_asks_may_be_limited_to_services(spanloop: Run) -> None:
    made = spanloop("keys", "create", "helper", "--scope", "ask", "--service", "shop", "--service", "bank")
    assert f"Authorization: Bearer {made.stdout.strip()}" in made.stderr
    assert "OTEL_EXPORTER_OTLP_HEADERS" not in made.stderr
    assert "shop, bank" in spanloop("keys", "list").stdout
    refused = spanloop("keys", "create", "sender", "--scope", "ingest", "--service", "shop")
    assert refused.returncode == 2
    assert "Services limit the scope ask alone" in refused.stderr
