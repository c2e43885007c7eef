"""Dead letters from the request to the table and back: no rejected item is lost."""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanloop.collector.dead_letters import DeadLetter, RejectReason, decode, encode
from spanloop.collector.otlp.wire import MalformedError
from spanloop.foundation.keys.api_keys import KeyRing, Scope
from spanloop.foundation.paths import DataDir
from spanloop.semconv.environment import CLICKHOUSE_URL_ENV
from spanloop.store import Store
from spanloop.store.client import Connection

from .collectors import CollectorProcess, Launcher, trace_request
from .test_process import stored_ids, wait_for

LETTERS = st.lists(
    st.builds(
        DeadLetter, signal=st.text(max_size=5), reason=st.sampled_from(RejectReason), detail=st.text(max_size=20),
        content_type=st.text(max_size=5), raw=st.binary(max_size=40), item_count=st.integers(0, 9),
        trace_ids=st.lists(st.text(max_size=4), max_size=2).map(tuple),
    ),
    max_size=4,
)  # fmt: skip


@given(LETTERS)
def test_a_record_round_trips_dead_letters(letters: list[DeadLetter]) -> None:
    assert decode(encode(letters)) == letters


@pytest.mark.parametrize("record", [b"", b"{}\n", b"[1]\n", b'[{"signal": "traces"}]\n', b"\xff", b"7\n"])
def test_another_record_is_malformed(record: bytes) -> None:
    with pytest.raises(MalformedError):
        assert decode(record) is None


def test_a_record_cut_short_is_malformed() -> None:
    letter = DeadLetter("traces", RejectReason.UNDECODABLE, "", "x", b"1234")
    with pytest.raises(MalformedError, match="4 bytes in a record that has 3"):
        decode(encode([letter])[:-1])


class Command:
    """``spanloop dead-letters`` on the test's store."""

    def __init__(self, data_dir: DataDir, clickhouse_url: str) -> None:
        self._data_dir = data_dir
        self._url = clickhouse_url

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        program = str(Path(sys.executable).with_name("spanloop"))
        command = [program, "dead-letters", *arguments, "--data-dir", str(self._data_dir.path)]
        return subprocess.run(command, capture_output=True, check=False, env={CLICKHOUSE_URL_ENV: self._url})


def waiting(store: Store) -> int:
    """How many dead letters are stored and not replayed."""
    return store.query("dead_letter_list", reason="", with_replayed=0, limit=100).height


@pytest.mark.slow
def test_a_dead_letter_is_stored_listed_and_replayed(
    launch: Launcher, data_dir: DataDir, clickhouse_url: str, store: Store, connection: Connection
) -> None:
    spanloop = Command(data_dir, clickhouse_url)
    assert b"no dead letters" in spanloop("list").stderr
    collector: CollectorProcess = launch()  # without ClickHouse: dead letters wait in the spool like spans
    request = trace_request(1, 2)
    request.resource_spans[0].scope_spans[0].spans[0].trace_id = b"short"
    mixed = collector.post(request.SerializeToString())
    broken = collector.post(b"\xff\xfe")
    assert (mixed.status_code, broken.status_code) == (200, 400)
    collector.kill()

    table = f"`{store.database}`.otel_traces"
    connection.command(f"ALTER TABLE {table} ADD CONSTRAINT c CHECK SpanName != 'span 3'", doing="being strict")
    collector = launch(clickhouse_url)
    collector.post(trace_request(3, 4).SerializeToString())
    wait_for(lambda: len(stored_ids(connection, store.database)) == 2, "spans 2 and 4")
    wait_for(lambda: waiting(store) == 3, "three dead letters")
    listed = spanloop("list").stdout.decode()
    assert len(listed.splitlines()) == 4
    assert all(reason in listed for reason in ("bad_trace_id", "malformed_body", "refused_by_clickhouse"))
    assert len(spanloop("list", "--reason", "bad_trace_id").stdout.splitlines()) == 2

    letter = next(line.split()[0] for line in listed.splitlines() if "bad_trace_id" in line)
    shown = spanloop("show", letter).stdout.decode()
    assert all(text in shown for text in (b"short".hex(), "span 1", "got 5 bytes", "service.name"))
    malformed_body = next(line.split()[0] for line in listed.splitlines() if "malformed_body" in line)
    assert spanloop("show", "--raw", malformed_body).stdout == b"\xff\xfe"
    assert spanloop("show", "nothing").returncode == 2

    assert spanloop("replay").returncode == 2
    again = spanloop("replay", "--all")
    assert (again.returncode, again.stdout) == (
        1,
        b"1 replayed, 2 refused again\n",
    )  # ClickHouse refuses it only at the insert
    wait_for(lambda: waiting(store) == 3, "the one to be refused again, unmarked")
    connection.command(f"ALTER TABLE {table} DROP CONSTRAINT c", doing="being lenient")
    secret = KeyRing(data_dir).create("sender", [Scope.INGEST]).secret
    without = spanloop("replay", "--all")
    assert (without.returncode, b"spanloop keys create" in without.stderr) == (2, True)
    completed = spanloop("replay", "--reason", "refused_by_clickhouse", "--key", secret)
    assert (completed.returncode, completed.stdout) == (0, b"1 replayed, 0 refused again\n")
    wait_for(lambda: len(stored_ids(connection, store.database)) == 3, "span 3")
    assert len(spanloop("list").stdout.splitlines()) == 3
    assert b"refused_by_clickhouse (replayed)" in spanloop("list", "--all").stdout
    assert collector.terminate() == 0
    assert b"No collector runs" in spanloop("replay", "--all").stderr
