"""Resident memory of the task runner, its agents and its pool of environments over thousands of sessions."""

import json
import os
import threading
from pathlib import Path

import psutil
import pytest

from spanloop.evaluation.environments import EnvironmentSettings
from spanloop.evaluation.environments.pool import PoolSettings
from spanloop.evaluation.runner.attempt import EndedAttempt
from spanloop.evaluation.runner.run import mark_prefix, run_attempts
from spanloop.foundation.processes.marked import VariableMark, find_processes
from spanloop.semconv.environment import PROCESS_MARK_ENV
from spanloop.store import Store

from .support import Told, plan_of

ENVIRONMENTS = Path(__file__).parents[1] / "environments"
SESSIONS, FIRST = 5_000, 1_000
AGENT = """
from spanloop.instrumentation import environment

def count(task):
    with environment() as world:
        world.step("add", {"number": 1})
"""


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_resident_memory_does_not_grow_with_the_number_of_sessions(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "counting.py").write_text(AGENT)
    source, folder = tmp_path / "tasks.jsonl", tmp_path / "runs" / "r1"
    source.write_text("".join(json.dumps({"id": f"t{number}", "number": number}) + "\n" for number in range(SESSIONS)))
    settings = EnvironmentSettings(name="troublesome:Counter", options={"goal": "1"})
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ENVIRONMENTS), str(tmp_path)))}
    plan = plan_of(folder, source, "counting:count", environment=variables, cwd=tmp_path, parallel=4)
    environments = PoolSettings(settings, variables, mark_prefix(folder))
    plan = plan._replace(making=plan.making._replace(environments=environments))
    told, sizes, ended = Told(), dict[int, tuple[int, int]](), 0

    def measure(_: EndedAttempt) -> None:
        nonlocal ended
        told.results.clear()  # the test's own
        ended += 1
        if ended in {FIRST, SESSIONS}:
            processes = find_processes(None, VariableMark(PROCESS_MARK_ENV, mark_prefix(folder)))
            sizes[ended] = (
                psutil.Process().memory_info().rss,
                sum(psutil.Process(each.pid).memory_info().rss for each in processes),
            )

    told.on_result = measure
    assert run_attempts(plan, store, told, threading.Event()).successes == SESSIONS
    with capsys.disabled():
        print({count: [f"{each / 1e6:.1f} MB" for each in pair] for count, pair in sizes.items()})  # noqa: T201
    for before, after in zip(sizes[FIRST], sizes[SESSIONS], strict=True):
        assert after <= 1.1 * before
