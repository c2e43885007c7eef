"""``spanloop store retention``: set, shown, taken back."""

import pytest

from .support import Run


@pytest.mark.slow
def test_a_retention_is_set_shown_and_taken_back(spanloop_on_store: Run) -> None:
    assert spanloop_on_store("store", "retention").stderr.strip() == "spans and log records are kept for ever"
    assert spanloop_on_store("store", "retention", "90d").stderr.strip() == "spans and log records are kept for 90 days"
    assert spanloop_on_store("store", "retention", "keep").returncode == 0
    refused = spanloop_on_store("store", "retention", "3 weeks")
    assert refused.returncode == 2
    assert "expected days" in refused.stderr
