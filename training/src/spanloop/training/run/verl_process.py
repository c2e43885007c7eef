"""Start, watch and stop the verl subprocess of one attempt, with all its children.

Invariant: when the context manager exits, no process of this attempt is alive. Ray's daemons and workers are recognised
by the job's environment variables, which they inherit, so other Ray clusters on the host are not touched.
"""

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import psutil

from spanloop.foundation.errors import JobError
from spanloop.foundation.paths import write_atomically
from spanloop.foundation.processes.marked import find_processes, kill_processes

from ..jobs.processes.job_processes import JOB_ID_ENV, JOB_TOKEN_ENV, JobMark
from ..models.checkpoints import Checkpoint, latest_checkpoint
from ..spec.choices import Backbone
from ..verl_plugin.drift import ENDED_NAME, EndedEarly
from ..verl_plugin.early_stopping import EarlyStop
from ..verl_plugin.train_plan import TrainPlan

_logger: Final = logging.getLogger(__name__)
_EVERY_S: Final = 2.0
_GB: Final = 1e9
_CGROUP_LIMIT: Final = Path("/sys/fs/cgroup/memory.max")


class MemoryUse(NamedTuple):
    """Largest use and smallest free memory, in bytes."""

    used_bytes: int
    """Use of the job's processes together; shared memory counts once, for the largest."""
    available_bytes: int
    """Free memory of the machine, without swapping."""
    limit_bytes: int
    """Memory of the machine, or of the container if it has less."""

    def __str__(self) -> str:
        used, left, limit = (f"{size_bytes / _GB:.1f} GB" for size_bytes in self)
        return f"Its processes used up to {used} of {limit}; the machine had {left} left at the least."


class MemoryWatch:
    """Samples memory use at most every two seconds.

    Args:
        pids: Returns the current processes of the job.
    """

    def __init__(self, pids: Callable[[], Iterable[int]]) -> None:
        self._pids = pids
        self._next_look_s = 0.0
        self._most_used = 0
        self._least_available: int | None = None

    def look(self) -> None:
        """Take a sample when one is due."""
        if time.monotonic() < self._next_look_s:
            return
        self._next_look_s = time.monotonic() + _EVERY_S
        self._most_used = max(self._most_used, _used_bytes(self._pids()))
        available = psutil.virtual_memory().available
        self._least_available = min(available, self._least_available or available)

    @property
    def use(self) -> MemoryUse | None:
        """The recorded extremes; None before the first sample."""
        if self._least_available is None:
            return None
        return MemoryUse(self._most_used, self._least_available, _limit_bytes())


def _used_bytes(pids: Iterable[int]) -> int:
    private, shared = 0, 0
    for pid in pids:
        try:
            memory = psutil.Process(pid).memory_info()
        except psutil.Error:
            continue  # the process has ended
        private += memory.rss - memory.shared
        shared = max(shared, memory.shared)
    return private + shared


def _limit_bytes() -> int:
    total = int(psutil.virtual_memory().total)
    try:
        text = _CGROUP_LIMIT.read_text().strip()
    except OSError:
        return total
    return min(total, int(text)) if text.isdigit() else total


_RAY_PREFIX: Final = "spanloop-ray-"
_OOM_SIGNS: Final = (
    "out of memory",
    "outofmemory",
    "can't allocate memory",
    "cannot allocate memory",
    "not enough memory",
    "low on memory",
    "oom killer",
)
"""Texts of torch, CUDA, Ray's memory monitor, and Ray about a worker that the kernel killed."""
_MISSING_SIGNS: Final = ("ModuleNotFoundError", "ImportError")
_DISK_SIGNS: Final = ("no space left", "disk quota exceeded", "pytorchstreamwriter failed writing")
_LATE_SIGN: Final = "timed out during startup"
_SOCKET_PATH_BYTES: Final = 40
"""Longest path of a temporary folder, so that Ray's socket paths below it stay under 107 bytes."""


class VerlProcess(NamedTuple):
    """A running verl subprocess."""

    process: subprocess.Popen[bytes]
    plan: TrainPlan
    memory: MemoryWatch
    """Memory use of this attempt's processes; the waiting loop takes its samples."""

    def exit_status(self) -> int | None:
        """Return the exit status, or None while the process runs."""
        return self.process.poll()


@contextmanager
def verl_process(plan: TrainPlan, plan_path: Path, *, token: int) -> Generator[VerlProcess]:
    """Start verl on ``plan``; it inherits this process's stdout and stderr.

    On the backbone ``debug`` it also inherits stdin and stays in the process group of the terminal, which a debugger
    needs.

    Args:
        plan: The plan to run.
        plan_path: File in which the subprocess finds the plan.
        token: The fencing token of the job's lease.
    """
    plan_path.write_text(plan.model_dump_json(indent=1))
    plan.failure_path.unlink(missing_ok=True)
    mark = JobMark(plan.job_id, token)
    is_debug = plan.run.backbone is Backbone.DEBUG
    process = subprocess.Popen(
        [sys.executable, "-m", "spanloop.training.verl_plugin.main", str(plan_path)],
        env=os.environ | {JOB_ID_ENV: plan.job_id, JOB_TOKEN_ENV: str(token), "PYTHONWARNINGS": "ignore"},
        cwd=plan_path.parent,
        stdin=None if is_debug else subprocess.DEVNULL,
        process_group=None if is_debug else 0,
    )
    try:
        yield VerlProcess(process, plan, MemoryWatch(lambda: [member.pid for member in find_processes(None, mark)]))
    finally:
        if process.poll() is None and is_debug:
            process.kill()
        elif process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        kill_processes(None, mark)
        process.wait()


@contextmanager
def ray_folder(previous_plan: Path) -> Generator[Path]:
    """Create a temporary folder for Ray's sockets and logs, with a path short enough for Unix sockets.

    Args:
        previous_plan: The plan of the job's last attempt, if any; a killed attempt leaves its folder, removed here.
    """
    if previous_plan.exists():
        # another version of spanloop may have written the rest
        shutil.rmtree(json.loads(previous_plan.read_bytes())["ray_temp_dir"], ignore_errors=True)
    parent = tempfile.gettempdir()
    temporary_parent = parent if len(os.fsencode(parent)) <= _SOCKET_PATH_BYTES else "/tmp"  # noqa: S108 - see the constant
    folder = Path(tempfile.mkdtemp(prefix=_RAY_PREFIX, dir=temporary_parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def finished_checkpoint(plan: TrainPlan, folder: Path, ending: EarlyStop | None) -> Checkpoint:
    """Return the checkpoint that a training without a failure has left.

    Args:
        plan: Of the attempt.
        folder: Of the stage; a training that was ended early is noted there.
        ending: What ended the training early, or None.

    Raises:
        JobError: There is none.
    """
    if ending is not None:
        return _last_good(plan, folder, ending)
    checkpoint = latest_checkpoint(plan.checkpoint_dir)
    if checkpoint is None or checkpoint.step < plan.steps:
        reached = checkpoint.step if checkpoint else 0
        raise JobError(
            f"Job {plan.job_id}: verl ended without an error after step {reached}, expected {plan.steps}.",
            next_step=f"spanloop jobs log {plan.job_id}",
        )
    return checkpoint


def _last_good(plan: TrainPlan, folder: Path, ending: EarlyStop) -> Checkpoint:
    checkpoint = latest_checkpoint(plan.checkpoint_dir, at_most=ending.last_step)
    if checkpoint is None and ending.takes_newest:
        checkpoint = latest_checkpoint(plan.checkpoint_dir)
    if checkpoint is None:
        raise JobError(
            f"Job {plan.job_id} was ended ({ending.cause}) and has no checkpoint from before: {ending.reason}",
            next_step=ending.next_step,
        )
    ended = EndedEarly(
        step=checkpoint.step, reason=f"{ending.cause} ended it at step {checkpoint.step}: {ending.reason}"
    )
    write_atomically(folder / ENDED_NAME, ended.model_dump_json(indent=1))
    _logger.info("%s", ended.reason)
    return checkpoint


def failure_of(run: VerlProcess, *, is_paused: bool = False) -> JobError:
    """Return why verl ended with an error, with the next step.

    Args:
        run: The ended process.
        is_paused: Whether serving was paused already, so that pausing cannot help.
    """
    report = _reported(run.plan.failure_path)
    where = f"Job {run.plan.job_id} ({run.plan.recipe.kind})"
    passing = _passing_failure(run, report, where)
    return passing or _memory_failure(run, report, where, is_paused=is_paused) or _other_failure(run, report, where)


def _passing_failure(run: VerlProcess, report: "_Report", where: str) -> JobError | None:
    """Return why it ended if the cause passes: a full disk, a busy machine, a Ray cluster that went away."""
    job_id, status, address = run.plan.job_id, run.process.returncode, run.plan.run.ray_address
    if any(sign in report.text for sign in _DISK_SIGNS):
        return JobError(
            f"{where} could not save: the disk is full. {_short(report.message)}",
            next_step=f"Free some space, then spanloop jobs retry {job_id}: it goes on from its checkpoint.",
            is_transient=True,
        )
    if _LATE_SIGN in report.text:
        return JobError(
            f"{where} could not start: Ray was not up in time, because the machine is busy. {_short(report.message)}",
            next_step=f"Leave the machine more time, then spanloop jobs retry {job_id}",
            is_transient=True,
        )
    if address and not report.kind and status > 0:
        # Ray ends a process that has lost the head of its cluster
        return JobError(
            f"{where} lost the Ray cluster {address}: verl ended with status {status} and no report.",
            next_step=f"Look at the cluster, then spanloop jobs retry {job_id}: it goes on from its checkpoint.",
            is_transient=True,
        )
    return None


def _memory_failure(run: VerlProcess, report: "_Report", where: str, *, is_paused: bool) -> JobError | None:
    status = run.process.returncode
    if status != -signal.SIGKILL and not any(sign in report.text for sign in _OOM_SIGNS):
        return None
    memory = f" {run.memory.use}" if run.memory.use else ""
    details = f" {_short(report.message)}" if report.message else ""
    pause = "" if is_paused else ", with --pause-serving, which stops vLLM meanwhile"
    return JobError(
        f"{where} ran out of memory, or was killed: verl ended with status {status}.{memory}{details}",
        next_step="Submit it again with a lower --micro-batch-tokens "
        f"(it was {run.plan.micro_batch_tokens or 'auto, see the log'}; "
        "no row may be longer: --max-prompt-tokens, --max-response-tokens)"
        f"{pause}, or stop what else needs memory; spanloop train --dry-run estimates what a job needs.",
    )


def _other_failure(run: VerlProcess, report: "_Report", where: str) -> JobError:
    job_id = run.plan.job_id
    if report.kind in _MISSING_SIGNS:
        return JobError(
            f"{where} cannot run: {report.message}.",
            next_step=f"{sys.executable} -m pip install '/path/to/spanloop[train]'; then spanloop jobs retry {job_id}",
        )
    if report.next_step:
        return JobError(
            f"{where} cannot run: {report.message}", next_step=report.next_step, is_transient=report.is_transient
        )
    status = run.process.returncode
    detail = f"{report.kind}: {_short(report.message)}" if report.kind else f"exit status {status} and no report"
    return JobError(f"{where} failed inside verl: {detail}", next_step=f"spanloop jobs log {job_id}")


class _Report(NamedTuple):
    """The report of a subprocess about its failure; its texts are empty where the subprocess was killed before."""

    kind: str = ""
    message: str = ""
    next_step: str = ""
    is_transient: bool = False

    @property
    def text(self) -> str:
        """Type and message in small letters."""
        return f"{self.kind} {self.message}".lower()


def _reported(path: Path) -> _Report:
    try:
        content = json.loads(path.read_text())
        next_step, is_transient = str(content.get("next_step", "")), bool(content.get("is_transient"))
        return _Report(str(content["type"]), str(content["message"]), next_step, is_transient)
    except (OSError, ValueError, KeyError):
        return _Report()


def _short(message: str, limit: int = 600) -> str:
    lines = message.strip()
    return lines if len(lines) <= limit else f"{lines[: limit // 2]} […] {lines[-limit // 2 :]}"
