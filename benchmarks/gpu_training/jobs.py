"""Run training jobs of the product, each from a plan, and read what its steps took.

A job runs as ``run_job`` starts it: ``python -m spanloop.training.verl_plugin.main PLAN``; or in this process, where
verl has been imported for a CPU.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import polars as pl
import torch

from spanloop.training.recipes.registry import parse_recipe
from spanloop.training.spec.choices import Backbone, Device
from spanloop.training.spec.optimiser import Optimiser
from spanloop.training.spec.run_settings import RunSettings
from spanloop.training.verl_plugin.main import train
from spanloop.training.verl_plugin.train_plan import TrainPlan

from .rows import row_tokens, write_dataset

NO_CHECKPOINTS: Final = ("trainer.save_freq=-1",)
"""Overrides of verl for a job whose result is its figures alone."""
_CACHES: Final = ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")
_LOG_CHARACTERS: Final = 3_000


class Job(NamedTuple):
    """The settings of a benchmark's job."""

    recipe: Mapping[str, Any]
    """With its ``kind``."""
    rows: pl.DataFrame
    vocabulary: int
    """Of the model, which has random weights."""
    model: Path
    steps: int
    batch: int
    """Groups, pairs or rows of a step."""
    optimiser: Mapping[str, Any] = {}
    device: Device = Device.AUTO
    backbone: Backbone = Backbone.RAY
    offload: bool = False
    bfloat16: bool | None = None
    """None: where the CPU has instructions for it; CUDA always."""
    pass_tokens: int | None = None
    """Tokens of one forward pass; None is auto."""
    threads: int = 8
    gpu_limit_gb: float | None = None
    """Memory that torch may take of the GPU; None is all."""
    verl: tuple[str, ...] = NO_CHECKPOINTS
    """Raw overrides of verl's configuration."""


class JobResult(NamedTuple):
    """What a job's steps took."""

    steps: list[dict[str, float]]
    """verl's metrics by name, for each completed step."""
    seconds: float
    """Of the whole job, imports and loading included."""
    gpu_gb: float
    """Largest use of the GPU beyond that before the job, sampled once a second; 0 on a CPU."""
    late_compilations: int
    """Files that torch's and Triton's compilers wrote after the third step."""
    problem: str
    """End of the log of a job that failed; empty otherwise."""
    backbone: str

    def median(self, name: str) -> float:
        """Return the median of a metric over the steps after the first, which warms up; 0 without it."""
        values = [step[name] for step in self.steps[1:] or self.steps if name in step]
        return statistics.median(values) if values else 0.0


def make_plan(job: Job, folder: Path) -> TrainPlan:
    """Write the dataset of a job into ``folder`` and return its plan."""
    folder.mkdir(parents=True, exist_ok=True)
    recipe = parse_recipe(dict(job.recipe))
    write_dataset(job.rows, recipe, folder / "dataset.parquet", vocabulary=job.vocabulary)
    longest = int(row_tokens(job.rows).max() or 0)  # type: ignore[arg-type]
    return TrainPlan(
        recipe=recipe,
        optimiser=Optimiser.model_validate({"learning_rate": 1e-5} | dict(job.optimiser)),
        run=RunSettings(device=job.device, backbone=job.backbone, offload=job.offload, verl=job.verl),
        job_id="benchmark",
        model_path=job.model,
        dataset_path=folder / "dataset.parquet",
        checkpoint_dir=folder / "checkpoints",
        metrics_path=folder / "metrics.jsonl",
        failure_path=folder / "failure.json",
        steps=job.steps,
        batch_size=job.batch,
        shuffle=False,
        max_prompt_tokens=int(job.rows["prompt_token_ids"].list.len().max() or 0),  # type: ignore[arg-type]
        max_response_tokens=int(job.rows["response_token_ids"].list.len().max() or 0),  # type: ignore[arg-type]
        micro_batch_tokens=job.pass_tokens,
        longest_row_tokens=longest,
        bfloat16=job.bfloat16,
        save_every_steps=job.steps,
        ray_temp_dir=Path(tempfile.mkdtemp(prefix="gpu-", dir="/tmp")),
        threads=job.threads,
        device=job.device,
    )


def run_here(job: Job, folder: Path) -> JobResult:
    """Train in this process, on the backbone ``debug``."""
    plan = make_plan(job._replace(backbone=Backbone.DEBUG), folder)
    environment, threads = dict(os.environ), torch.get_num_threads()
    # more threads gain nothing from matrices as small as the tiny model's
    torch.set_num_threads(1)
    started_s = time.monotonic()
    try:
        train(plan)
    finally:
        torch.set_num_threads(threads)
        os.environ.clear()
        os.environ.update(environment)
    return JobResult(_steps(plan), time.monotonic() - started_s, 0.0, 0, "", plan.run.backbone.value)


class RunningJob:
    """A job in processes of its own.

    Args:
        job: The job.
        folder: Of its files.
    """

    def __init__(self, job: Job, folder: Path) -> None:
        self._plan = make_plan(job, folder)
        self._folder = folder
        (folder / "plan.json").write_text(self._plan.model_dump_json())
        caches = {name: str(folder / name.lower()) for name in _CACHES}
        command = [sys.executable, "-m", "spanloop.training.verl_plugin.main", str(folder / "plan.json")]
        self._started_s = time.monotonic()
        environment = os.environ | caches | {"PYTHONWARNINGS": "ignore"}
        if job.gpu_limit_gb:
            share = job.gpu_limit_gb * 1e9 / torch.cuda.get_device_properties(0).total_memory
            environment["PYTORCH_CUDA_ALLOC_CONF"] = f"per_process_memory_fraction:{share:.4f}"
        with (folder / "log.txt").open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        self._gpu_gb = 0.0
        self._gpu_before_gb = used_gpu_gb()
        self._third_step_s = 0.0
        self._over = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    def result(self, *, timeout_s: float) -> JobResult:
        """Wait for the job to end; it is ended after ``timeout_s``."""
        problem = ""
        try:
            status = self._process.wait(timeout=max(1.0, timeout_s))
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
            problem = f"ended after {time.monotonic() - self._started_s:.0f} s. "
        seconds = time.monotonic() - self._started_s
        self._over.set()
        self._watcher.join()
        if status:
            problem += (self._folder / "log.txt").read_text(errors="replace")[-_LOG_CHARACTERS:]
        late = self._late_compilations()
        return JobResult(_steps(self._plan), seconds, self._gpu_gb, late, problem, self._plan.run.backbone.value)

    def _watch(self) -> None:
        while not self._over.wait(1.0):
            self._gpu_gb = max(self._gpu_gb, used_gpu_gb() - self._gpu_before_gb)
            if not self._third_step_s and len(_steps(self._plan)) >= 3:
                self._third_step_s = time.time()

    def _late_compilations(self) -> int:
        if not self._third_step_s:
            return 0
        written = [path for name in _CACHES for path in (self._folder / name.lower()).rglob("*") if path.is_file()]
        return sum(path.stat().st_mtime > self._third_step_s for path in written)


def used_gpu_gb() -> float:
    """Return the used memory of the first GPU in GB; 0 without one."""
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "--id=0"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return 0.0
    return int(answer.split()[0]) * 2**20 / 1e9


def _steps(plan: TrainPlan) -> list[dict[str, float]]:
    if not plan.metrics_path.exists():
        return []
    lines = plan.metrics_path.read_text().splitlines(keepends=True)
    return [json.loads(line)["data"] for line in lines if line.endswith("\n")]
