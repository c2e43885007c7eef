"""The ledger detects every kind of error; the fault tests rely on it."""

import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from spanloop.collector.blocks.protobuf_blocks import ProtobufStrategy
from spanloop.spool import Batch, Record
from spanloop.store import Store
from spanloop.store.client import Address, Connection

from .ledger import Balance, Ledger, balance
from .support import count_unsummarised, find_ids, traces_body

CLEAN = Balance(
    attempted=4, acknowledged=2, refused=1, unknown=1, stored=2, resent=0, lost=0, unexpected=0, duplicated=0
)


@pytest.fixture
def ledger_path(tmp_path: Path) -> Path:
    """Ids 1 and 2 are acknowledged, 3 is refused, 4 is unknown."""
    with Ledger(tmp_path / "ledger") as ledger:
        ids = ledger.new_ids(4)
        ledger.attempted(ids)
        ledger.acknowledged(ids[:2])
        ledger.refused(ids[2:3])
        ledger.unknown(ids[3:])
        assert ledger.new_ids(1) == (5,)
    return ledger.path


@pytest.mark.parametrize(
    ("stored_ids", "expected"),
    [
        ([1, 2], CLEAN),
        ([1, 2, 4], CLEAN._replace(stored=3)),
        ([1, 4], CLEAN._replace(lost=1)),
        ([1, 2, 2, 4], CLEAN._replace(stored=4, duplicated=1)),
        ([1, 2, 4, 4, 4], CLEAN._replace(stored=5, duplicated=2)),
        ([1, 2, 3], CLEAN._replace(stored=3, unexpected=1)),
        ([1, 2, 99], CLEAN._replace(stored=3, unexpected=1)),
    ],
)
def test_each_error_is_counted_in_its_column(ledger_path: Path, stored_ids: list[int], expected: Balance) -> None:
    result = balance(ledger_path, Counter(stored_ids))
    assert result == expected
    assert result.is_clean == (expected[-3:] == (0, 0, 0))


def test_a_client_retry_is_another_attempt(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger") as ledger:
        ids = ledger.new_ids(1)
        for settle in (ledger.unknown, ledger.refused, ledger.acknowledged):
            ledger.attempted(ids)
            settle(ids)
    for copies, duplicated in ((1, 0), (2, 0), (3, 1)):
        result = balance(ledger.path, {1: copies})
        assert (result.attempted, result.acknowledged, result.unknown) == (1, 1, 0)
        assert (result.resent, result.lost, result.duplicated) == (1, 0, duplicated)
    assert balance(ledger.path, {}).lost == 1


def test_an_attempt_without_an_outcome_is_an_error(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger") as ledger:
        ledger.attempted([1])
    with pytest.raises(ValueError, match=r"ids \[1\]"):
        balance(ledger.path, {})


def test_a_span_missing_from_a_view_is_counted(store: Store, address: Address) -> None:
    batch = Batch("ab" * 16, (Record("traces 3", traces_body([1, 2, 3]), 1, time.time_ns()),))
    ProtobufStrategy().prepare(batch).insert(store)
    assert (find_ids(address), count_unsummarised(address)) == (Counter([1, 2, 3]), 0)
    with closing(Connection(address)) as connection:
        connection.command("TRUNCATE TABLE trace_summaries", doing="forgetting summaries")
    assert count_unsummarised(address) == 3
