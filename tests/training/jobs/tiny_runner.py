"""A real runner for tests: does what its first argument says, and keeps a ledger in the job's folder.

``work [steps] [seconds a step]`` goes on from the ledger, reports progress and registers a version. Two of them at one
time leave a file named ``violation``.
"""

import argparse
import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("behaviour", nargs="+")
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--job", required=True)
    options = parser.parse_args()
    behaviour, *rest = options.behaviour
    folder = jobs(options.data_dir) / options.job
    assert os.environ["SPANLOOP_JOB_ID"] == options.job
    (folder / "pid").write_text(str(os.getpid()))
    if behaviour == "work":
        return work_or_fail(Path(options.data_dir), options.job, int(rest[0]), float(rest[1]))
    if behaviour == "fail":
        sys.stderr.write("loading the model\nValueError: the loss is nan\n")
        return 7
    if behaviour == "away":
        sys.stderr.write("ClickHouse is unreachable\n")
        return os.EX_TEMPFAIL
    if behaviour == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    if behaviour == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if behaviour == "family":
        # One child in the session, one that left it: what a Ray worker and a daemon would be.
        near = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        far = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
        (folder / "family").write_text(f"{near.pid} {far.pid}")
        if rest == ["leave"]:
            return 0
    if behaviour == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    (folder / "ready").touch()
    time.sleep(600)
    return 0


def jobs(data_dir: str) -> Path:
    """The folder of jobs: of a data directory, or of all that share one."""
    return Path(os.environ.get("SPANLOOP_SHARED_DIR") or data_dir) / "jobs"


def work_or_fail(data_dir: Path, job_id: str, steps: int, step_s: float) -> int:
    """End as `run_job` does: a job whose database is away is tried again."""
    from spanloop.foundation.errors import SpanloopError  # noqa: PLC0415

    try:
        return work(data_dir, job_id, steps, step_s)
    except SpanloopError as error:
        sys.stderr.write(f"{error}\n")
        return os.EX_TEMPFAIL if error.is_transient else 1


def work(data_dir: Path, job_id: str, steps: int, step_s: float) -> int:
    # Only here: the other behaviours start ten times as fast without.
    from spanloop.training.jobs.progress import job_token, report_progress  # noqa: PLC0415
    from spanloop.training.models.registry import Registry  # noqa: PLC0415

    folder = jobs(str(data_dir)) / job_id
    with (folder / "alone.lock").open("w") as lock, (folder / "ledger").open("a+") as ledger:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            (folder / "violation").touch()
        ledger.seek(0)
        for step in range(len(ledger.read().splitlines()) + 1, steps + 1):
            time.sleep(step_s)
            report_progress(data_dir, job_id, job_token(), step, steps)
            ledger.write(f"{step}\n")
            ledger.flush()
        result = folder / "result"
        result.mkdir(exist_ok=True)
        (result / "config.json").write_text("{}")
        (result / "model.safetensors").write_bytes(f"weights of {job_id}".encode())
        Registry(data_dir).add("tiny", result, parent="tiny@v1", job_id=job_id, token=job_token())
    return 0


if __name__ == "__main__":
    sys.exit(main())
