import io

import pytest

from spanloop.cli import console
from spanloop.cli.learning.run import _print_summary  # pyright: ignore[reportPrivateUsage]
from spanloop.evaluation.runner.ledger import Summary
from spanloop.foundation.paths import DataDir


@pytest.mark.parametrize(("states", "is_hinted"), [({"finished": 1}, True), ({}, False)])
def test_a_summary_names_the_next_command_only_where_attempts_are_stored(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch, *, states: dict[str, int], is_hinted: bool
) -> None:
    notes = io.StringIO()
    monkeypatch.setattr(console.err, "_file", notes)
    _print_summary(data_dir, "first", Summary(sum(states.values()), states, 0, 0, 0.0, 0))
    assert ("runs show first" in notes.getvalue()) is is_hinted
