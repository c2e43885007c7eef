"""What tests of the loop share: an app's files, a recorded progress, a scheduler that trains nothing."""

import json
import threading
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from spanloop.foundation.control.clock import utc_now
from spanloop.foundation.paths import DataDir
from spanloop.training.jobs import job_outcomes
from spanloop.training.jobs.database.control_database import ControlDatabase
from spanloop.training.jobs.job_queue import lease_next_job
from spanloop.training.jobs.leases import JobLease
from spanloop.training.jobs.paths import ControlPaths
from spanloop.training.loop.progress import RunningStep
from spanloop.training.loop.rounds import LoopRound, StepRecord
from spanloop.training.models.registry import Registry

APP = """# the comment stays
[model]
name = "m"
source = "weights"

[run]
tasks = "train.jsonl"
agent = "solver:solve"
grader = "exact"
parallel = 1

[evaluation]
tasks = "test.jsonl"

[[train]]
kind = "sft"
steps = 2

[promotion]
max_tasks = 25
"""
AGENT = """
import os

def solve(task):
    return task["answer"] if os.environ["OPENAI_MODEL"] in task["solvers"] else "no idea"
"""
EVALUATION_TASKS = 25
TRAINING_TASKS = 4


def write_app(folder: Path, *, solvers: tuple[str, ...] = ("m@v2",)) -> None:
    """Write the file and what it names."""
    folder.mkdir()
    (folder / "app.toml").write_text(APP)
    (folder / "solver.py").write_text(AGENT)
    for name, count in (("train", TRAINING_TASKS), ("test", EVALUATION_TASKS)):
        rows = [
            {"id": f"{name}/{number}", "question": f"{name} {number}", "answer": "yes", "solvers": solvers}
            for number in range(count)
        ]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_model_folder(folder: Path) -> Path:
    """Write weights that the gateway serves as they are."""
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "llama"}')
    (folder / "tokenizer.json").write_text('{"model": {"vocab": {"a": 0}, "merges": []}, "added_tokens": []}')
    header = json.dumps({"lm_head.weight": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}}).encode()
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    return folder


@dataclass
class Progress:
    """Records what a loop tells."""

    steps: list[RunningStep] = field(default_factory=list[RunningStep])
    finished_steps: list[tuple[str, bool]] = field(default_factory=list[tuple[str, bool]])
    rounds: list[LoopRound] = field(default_factory=list[LoopRound])
    notes: list[str] = field(default_factory=list[str])

    def preparing(self, text: str) -> None:
        self.notes.append(text)

    def started(self, step: RunningStep) -> None:
        self.steps.append(step)

    def progressed(self, done: int, total: int, text: str) -> None:
        pass

    def finished(self, step: RunningStep, record: StepRecord, *, was_done: bool) -> None:
        assert record.name is step.name
        self.finished_steps.append((step.name.value, was_done))

    def ended(self, ended: LoopRound) -> None:
        self.rounds.append(ended)

    def note(self, text: str) -> None:
        self.notes.append(text)


class Scheduler:
    """Gives each queued job the same weights as its result."""

    def __init__(self, data_dir: DataDir, weights: Path, model: str = "m") -> None:
        self._model = model
        self._registry = Registry(data_dir)
        self._database = ControlDatabase(ControlPaths.of(data_dir))
        self._weights = weights
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.jobs: list[str] = []
        self.failure = ""
        """The next job fails with it."""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(0.05):
            now = utc_now()
            with self._database.write() as session:
                lease = lease_next_job(session, owner="test", now=now, until=now + timedelta(hours=1))
            if lease is not None:
                self._end(lease)

    def _end(self, lease: JobLease) -> None:
        self.jobs.append(lease.job_id)
        if self.failure:
            error, self.failure = self.failure, ""
            with self._database.write() as session:
                job_outcomes.mark_failed(session, lease, now=utc_now(), error=error)
            return
        self._registry.add(
            self._model, self._weights, parent=f"{self._model}@v1", job_id=lease.job_id, token=lease.token
        )
        with self._database.write() as session:
            job_outcomes.mark_succeeded(session, lease, now=utc_now())
