import json
import subprocess
import sys
from pathlib import Path

import pytest

from spanloop.training.run.verl_process import MemoryWatch, VerlProcess, failure_of, ray_folder

from ..training_running import a_plan


def ended(folder: Path, code: str) -> VerlProcess:
    process = subprocess.Popen([sys.executable, "-c", code])
    watch = MemoryWatch(lambda: [process.pid])
    watch.look()
    process.wait()
    return VerlProcess(process, a_plan(folder), watch)


@pytest.mark.parametrize(
    ("report", "expected", "next_step"),
    [
        (
            {"type": "OutOfMemoryError", "message": "task was killed"},
            "ran out of memory",
            "Submit it again with a lower",
        ),
        (
            {
                "type": "RuntimeError",
                "message": "DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes",
            },
            "you tried to allocate 9 bytes",
            "Submit it again with a lower --micro-batch-tokens (it was 4096",
        ),
        (
            {"type": "ActorDiedError", "message": "The process is killed by SIGKILL by OOM killer due to …"},
            "ran out of memory, or was killed",
            "Submit",
        ),
        ({"type": "RayTaskError", "message": "node running low on memory"}, "ran out of memory", "Submit"),
        (
            {"type": "ModuleNotFoundError", "message": "No module named 'verl'"},
            "cannot run: No module named 'verl'",
            f"{sys.executable} -m pip install '/path/to/spanloop[train]'",
        ),
        ({"type": "OSError", "message": "[Errno 28] No space left on device"}, "the disk is full", "Free some space"),
        (
            {"type": "Exception", "message": "The current node timed out during startup."},
            "Ray was not up in time",
            "Leave the machine more time",
        ),
        (
            {"type": "NodeLostError", "message": "a node is gone", "next_step": "start it", "is_transient": True},
            "cannot run: a node is gone",
            "start it",
        ),
        ({"type": "JobError", "message": "no CUDA", "next_step": "use the CPU"}, "cannot run: no CUDA", "use the CPU"),
        ({"type": "ValueError", "message": "odd"}, "failed inside verl: ValueError: odd", "spanloop jobs log job-1"),
    ],
)
def test_a_report_becomes_an_error_with_a_next_step(
    tmp_path: Path, report: dict[str, str], expected: str, next_step: str
) -> None:
    (tmp_path / "failure.json").write_text(json.dumps(report))
    error = failure_of(ended(tmp_path, "raise SystemExit(1)"))
    assert expected in error.what
    assert error.what.startswith("Job job-1 (dr_grpo) ")
    assert error.next_step.startswith(next_step)
    passing = {"the disk is full", "Ray was not up in time", "cannot run: a node is gone"}
    assert error.is_transient == (expected in passing)


def test_a_process_that_was_killed_reports_nothing_and_is_taken_for_out_of_memory(tmp_path: Path) -> None:
    error = failure_of(ended(tmp_path, "import os; os.kill(os.getpid(), 9)"))
    assert "status -9" in error.what
    assert "Its processes used up to" in error.what
    assert "--pause-serving" in error.next_step


def test_what_is_done_already_is_not_advised(tmp_path: Path) -> None:
    error = failure_of(ended(tmp_path, "import os; os.kill(os.getpid(), 9)"), is_paused=True)
    assert "--max-response-tokens), or stop" in error.next_step


def test_a_crash_without_a_report_names_its_status(tmp_path: Path) -> None:
    assert "exit status 7 and no report" in failure_of(ended(tmp_path, "raise SystemExit(7)")).what


def test_a_process_without_its_cluster_is_tried_again(tmp_path: Path) -> None:
    run = ended(tmp_path, "raise SystemExit(1)")
    error = failure_of(run._replace(plan=a_plan(tmp_path, ray_address="10.0.0.1:6379")))
    assert "lost the Ray cluster 10.0.0.1:6379" in error.what
    assert error.is_transient


def test_ray_s_folder_is_short_and_goes_with_what_a_killed_attempt_left(tmp_path: Path) -> None:
    left = tmp_path / "ray"
    left.mkdir()
    (tmp_path / "plan.json").write_text(a_plan(tmp_path).model_dump_json())
    with ray_folder(tmp_path / "plan.json") as folder:
        assert not left.exists()
        assert folder.is_dir()
        assert len(str(folder)) < 64
    assert not folder.exists()
