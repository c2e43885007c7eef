"""The audit log: on disk before an action, with its result afterwards."""

import json
from concurrent.futures import ThreadPoolExecutor

from spanloop.foundation.keys.audit import BEGUN, FAILED, OK, AuditEntry, AuditLog
from spanloop.foundation.paths import DataDir


def add(audit: AuditLog, object_: str, result: str = BEGUN) -> AuditEntry:
    return audit.add(
        user="ann", role="operator", address="10.0.0.9", action="cancel job", object_=object_, result=result
    )


def test_an_action_is_recorded_before_it_ends(data_dir: DataDir) -> None:
    audit = AuditLog(data_dir)
    begun = add(audit, "j1")
    assert AuditLog(data_dir).read() == [begun]
    audit.finish(begun, FAILED, "JobError: j1 has ended")
    assert AuditLog(data_dir).read() == [begun._replace(result=FAILED, detail="JobError: j1 has ended")]
    assert data_dir.audit.stat().st_mode & 0o777 == 0o600
    assert [json.loads(line)["result"] for line in data_dir.audit.read_text().splitlines()] == [BEGUN, FAILED]


def test_a_torn_line_costs_only_itself(data_dir: DataDir) -> None:
    audit = AuditLog(data_dir)
    first = add(audit, "j1", OK)
    with data_dir.audit.open("a") as file:
        file.write('{"id": "torn", "at"')
    second = add(audit, "j2", OK)
    assert audit.read() == [first, second]


def test_many_writers_lose_no_line(data_dir: DataDir) -> None:
    def write(number: int) -> AuditEntry:
        return add(AuditLog(data_dir), f"j{number}", OK)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(40)))
    assert {entry.object for entry in AuditLog(data_dir).read()} == {f"j{number}" for number in range(40)}


def test_text_from_outside_stays_in_its_line(data_dir: DataDir) -> None:
    audit = AuditLog(data_dir)
    add(audit, 'a\n{"id": "forged"}' + "x" * 10_000 + "\ud800", OK)
    (entry,) = audit.read()
    assert entry.object.startswith('a\n{"id": "forged"}x')
    assert len(entry.object) < 600
