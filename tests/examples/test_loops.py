"""The quick form of each example: its one command on few tasks, before a model that always says the same.

The loop completes; nothing is claimed about learning. The training is left out, everything else is real.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from framework_matrix.recording import collecting

from spanloop.cli.learning.loop import run_file
from spanloop.foundation.paths import DataDir
from spanloop.semconv.environment import CLICKHOUSE_URL_ENV
from spanloop.store import Store
from spanloop.store.client import Address
from spanloop.training.loop.loop import LoopOrder
from spanloop.training.loop.rounds import RoundOutcome, StepName
from spanloop.training.models.registry import Registry

from ..instrumentation.support import EXAMPLES
from ..training.gateway_stand_in import GatewayStandIn, gateway_stand_in
from ..training.loop.support import Scheduler, write_model_folder
from ..training.training_running import url_of

TRAIN_TASKS, TEST_TASKS = 4, 21
"""The promotion rule needs twenty."""
QUICK = {r"(?m)^attempts = \d+": "attempts = 1", r"(?m)^parallel = \d+": "parallel = 1"}
SLOW = pytest.mark.slow
FOLDERS = [
    "patient",
    *(pytest.param(name, marks=SLOW) for name in ("lake", "apps", "math", "countdown", "sql", "office", "werewolves")),
]


@pytest.fixture
def services(  # noqa: PLR0917 - fixtures
    data_dir: DataDir, store: Store, address: Address, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> Iterator[GatewayStandIn]:
    """A collector, and stand-ins for gateway and scheduler, on the data directory."""
    assert store.database == address.database
    monkeypatch.setenv(CLICKHOUSE_URL_ENV, url_of(address))
    with (
        gateway_stand_in(data_dir) as gateway,
        collecting(address, address.database, data_dir.path),
        data_dir.announce("scheduler", "http://127.0.0.1:1"),
    ):
        scheduler = Scheduler(data_dir, write_model_folder(tmp_path / "trained"), name)
        scheduler.start()
        yield gateway
        scheduler.stop()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", FOLDERS)
def test_its_loop_completes(
    data_dir: DataDir, store: Store, services: GatewayStandIn, tmp_path: Path, *, name: str
) -> None:
    folder = tmp_path / name
    folder.mkdir()
    for path in (EXAMPLES / name).iterdir():
        if path.suffix in {".py", ".toml"}:
            (folder / path.name).write_bytes(path.read_bytes())
    command = [sys.executable, "tasks.py", ".", "--train", str(TRAIN_TASKS), "--test", str(TEST_TASKS)]
    subprocess.run(command, cwd=folder, check=True, timeout=120)
    app = folder / "app.toml"
    text = app.read_text()
    for pattern, line in QUICK.items():
        text, count = re.subn(pattern, line, text)
        assert count
    app.write_text(text)
    Registry(data_dir).add(name, write_model_folder(tmp_path / "weights"))
    services.answer = "right"
    paths, modules = list(sys.path), set(sys.modules)
    try:
        end = run_file(data_dir, app, LoopOrder(rounds=1))
    finally:
        sys.path[:] = paths
        for module in set(sys.modules) - modules:
            if os.fspath(tmp_path) in str(getattr(sys.modules[module], "__file__", "")):
                del sys.modules[module]
    assert end is not None
    (only,) = end.rounds
    assert only.outcome in {RoundOutcome.KEPT, RoundOutcome.UNDECIDED}
    rows = store.connection.query("SELECT model, state FROM attempts FINAL", doing="reading attempts")
    collected = 0 if name == "sql" else TRAIN_TASKS
    assert rows["state"].to_list() == ["finished"] * (2 * TEST_TASKS + collected)
    success = [only.step(step).result for step in (StepName.MEASURE, StepName.TEST)]
    assert all(result is not None and result["tasks"] == TEST_TASKS for result in success)
