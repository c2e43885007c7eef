"""Test the model registry: visible versions are complete, and a job registers one version."""

import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from spanloop.foundation.errors import ConfigurationError, DataDirectoryError, JobError
from spanloop.foundation.paths import DataDir
from spanloop.foundation.paths.checksums import CHECKSUMS_FILE, FileChecksum, read_checksums
from spanloop.foundation.processes.identity import ProcessIdentity
from spanloop.training.jobs import job_outcomes, job_queue, leases
from spanloop.training.jobs.database.control_database import ControlDatabase
from spanloop.training.models import atomic_copy
from spanloop.training.models.registry import Registry
from spanloop.training.run.job_api import JobApi, JobLeaseLostError, JobSpec

from .support import FakeClock, wait_until


def test_versions_count_up_and_keep_their_lineage(
    registry: Registry, model_folder: Path, data_dir: DataDir, clock: FakeClock
) -> None:
    (model_folder / "model.safetensors").write_bytes(b"better weights")
    clock.forward(minutes=1)
    second = registry.add("tiny", model_folder, parent="tiny", metadata={"loss": 0.5, "tasks": ["a"]})
    assert (second.reference, second.parent, second.created_at) == ("tiny@v2", "tiny@v1", clock.now)
    assert second.path == data_dir.path / "models" / "tiny" / "v2"
    assert (second.path / "model.safetensors").read_bytes() == b"better weights"
    assert dict(second.metadata) == {"loss": 0.5, "tasks": ["a"]}
    assert registry.get("tiny") == registry.get("tiny@v2") == second
    assert registry.get("tiny@v1").weights_sha256 != second.weights_sha256
    assert [model.reference for model in Registry(data_dir).list()] == ["tiny@v2", "tiny@v1"]
    assert registry.list("other") == ()


def test_a_lineage_begins_with_the_first_ancestor(registry: Registry, model_folder: Path) -> None:
    registry.add("tiny", model_folder, parent="tiny@v1")
    registry.add("tiny", model_folder, parent="tiny@v1")
    registry.add("small", model_folder, parent="tiny@v3")
    for reference, expected in (
        ("small", ["tiny@v1", "tiny@v3", "small@v1"]),
        ("tiny@v2", ["tiny@v1", "tiny@v2"]),
        ("tiny@v1", ["tiny@v1"]),
    ):
        assert [version.reference for version in registry.lineage(reference)] == expected
    with pytest.raises(JobError, match="'small@v2'"):
        registry.lineage("small@v2")


def test_the_weights_hash_sees_weights_only(registry: Registry, model_folder: Path) -> None:
    (model_folder / "README.md").write_text("other words")
    assert registry.add("copy", model_folder).weights_sha256 == registry.get("tiny").weights_sha256
    (model_folder / "model.safetensors").rename(model_folder / "model-00001.safetensors")
    assert registry.add("copy", model_folder).weights_sha256 != registry.get("tiny").weights_sha256


def test_folders_within_and_links_are_copied(registry: Registry, model_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "blob").write_bytes(b"shared")
    (model_folder / "tokenizer.json").symlink_to(tmp_path / "blob")
    (model_folder / "extra" / "deep").mkdir(parents=True)
    (model_folder / "extra" / "deep" / "file").write_text("here")
    found = registry.add("tiny", model_folder)
    assert not (found.path / "tokenizer.json").is_symlink()
    assert (found.path / "tokenizer.json").read_bytes() == b"shared"
    assert (found.path / "extra" / "deep" / "file").read_text() == "here"
    files = [path for path in found.path.rglob("*") if path.is_file() and path.name != CHECKSUMS_FILE]
    assert found.size_bytes == sum(path.stat().st_size for path in files)
    assert read_checksums(found.path) == {
        str(path.relative_to(found.path)): FileChecksum(
            path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest()
        )
        for path in files
    }


@pytest.mark.parametrize("name", ["", "../up", "a/b", ".hidden", "a@v1", "x" * 65])
def test_names_that_are_none_are_refused(registry: Registry, model_folder: Path, name: str) -> None:
    with pytest.raises(ConfigurationError):
        registry.add(name, model_folder)
    assert len(registry.list()) == 1


def test_what_is_no_model_folder_is_refused(registry: Registry, model_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(JobError, match="not a directory"):
        registry.add("tiny", tmp_path / "nowhere")
    (model_folder / "model.safetensors").unlink()
    with pytest.raises(JobError, match="no weights"):
        registry.add("tiny", model_folder)
    (model_folder / "config.json").unlink()
    with pytest.raises(JobError, match=re.escape("no config.json")):
        registry.add("tiny", model_folder)


def test_unknown_versions_are_refused(registry: Registry, model_folder: Path) -> None:
    for reference in ("tiny@v2", "other"):
        with pytest.raises(JobError, match=f"'{reference}'"):
            registry.get(reference)
    with pytest.raises(ConfigurationError):
        registry.get("tiny@v0")
    with pytest.raises(JobError, match="'other'"):
        registry.add("tiny", model_folder, parent="other")
    with pytest.raises(JobError, match="no job 'nothing'"):
        registry.add("tiny", model_folder, job_id="nothing")


def test_a_job_registers_one_version_however_often_it_runs(
    *, api: JobApi, spec: JobSpec, registry: Registry, database: ControlDatabase, model_folder: Path, clock: FakeClock
) -> None:
    job = api.submit(spec)
    first = _take(database, clock)
    made = registry.add("tiny", model_folder, job_id=job.id, token=first.token)
    assert api.get(job.id).model_version == made.reference == "tiny@v2"
    with database.write() as session:
        job_outcomes.requeue_interrupted(session, first, now=clock.now, error="killed", max_attempts=3)
    second = _take(database, clock)
    (model_folder / "model.safetensors").write_bytes(b"of the second attempt")
    assert registry.add("tiny", model_folder, job_id=job.id, token=second.token) == made
    with pytest.raises(JobLeaseLostError):
        registry.add("tiny", model_folder, job_id=job.id, token=first.token)
    assert len(registry.list()) == 2


def test_a_runner_that_lost_its_lease_while_it_copied_registers_nothing(
    *, api: JobApi, spec: JobSpec, registry: Registry, database: ControlDatabase, model_folder: Path, clock: FakeClock
) -> None:
    job = api.submit(spec)
    lease = _take(database, clock)
    with database.write() as session:
        job_outcomes.requeue_released(session, lease, now=clock.now)
    with pytest.raises(JobLeaseLostError):
        registry.add("tiny", model_folder, job_id=job.id, token=lease.token)
    assert [path.name for path in registry.get("tiny").path.parent.iterdir()] == ["v1"]
    assert api.get(job.id).model_version == ""


def test_a_leftover_folder_without_a_record_is_replaced(registry: Registry, model_folder: Path) -> None:
    leftover = registry.get("tiny").path.with_name("v2")
    leftover.mkdir()
    (leftover / "half").touch()
    assert sorted(path.name for path in registry.add("tiny", model_folder).path.iterdir()) == [
        "config.json",
        "model.safetensors",
        CHECKSUMS_FILE,
    ]


ADD = """
import sys
from spanloop.training.models.registry import Registry
registry = Registry(sys.argv[1])
print("ready", flush=True)
while True:
    registry.add("killed", sys.argv[2])
"""


@pytest.mark.parametrize("delay_s", [0.013, 0.11])
def test_kill_9_during_an_add_leaves_only_whole_versions(
    registry: Registry, model_folder: Path, data_dir: DataDir, delay_s: float
) -> None:
    (model_folder / "model.safetensors").write_bytes(os.urandom(3_000_000))
    with subprocess.Popen(
        [sys.executable, "-c", ADD, str(data_dir.path), str(model_folder)], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(delay_s)
        process.send_signal(signal.SIGKILL)
    expected = registry.get("tiny").weights_sha256
    for model in registry.list("killed"):
        assert (model.path / "model.safetensors").read_bytes() == (model_folder / "model.safetensors").read_bytes()
        assert model.weights_sha256 != expected
    versions = len(registry.list("killed"))
    added = registry.add("killed", model_folder)
    assert added.version == f"v{versions + 1}"
    assert [path.name for path in added.path.parent.iterdir() if path.name.startswith(".")] == []


def test_a_copy_in_the_making_is_left_alone(registry: Registry, model_folder: Path) -> None:
    parent = registry.get("tiny").path.parent
    mine = parent / f"{atomic_copy.INCOMING_PREFIX}{ProcessIdentity.current().file_name}-0"
    mine.mkdir()
    registry.add("tiny", model_folder)
    assert mine.is_dir()


def test_a_full_disk_is_named_and_leaves_nothing(
    registry: Registry, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nearly_full(_path: object) -> SimpleNamespace:
        return SimpleNamespace(total=100, used=95, free=5)

    monkeypatch.setattr(shutil, "disk_usage", nearly_full)
    with pytest.raises(DataDirectoryError, match=r"Not enough disk space for a model of .* bytes.*5 bytes are free"):
        registry.add("tiny", model_folder)
    assert [path.name for path in registry.get("tiny").path.parent.iterdir()] == ["v1"]


def test_deployments_are_a_history(registry: Registry, model_folder: Path, clock: FakeClock) -> None:
    assert registry.deployed() is None
    registry.add("tiny", model_folder)
    for reference in ("tiny@v1", "tiny@v2", "tiny@v1"):
        clock.forward(minutes=1)
        registry.record_deployment(reference)
    assert [deployment.reference for deployment in registry.deployments()] == ["tiny@v1", "tiny@v2", "tiny@v1"]
    assert registry.deployments(limit=1)[0].deployed_at == clock.now
    assert registry.deployed() == registry.get("tiny@v1")
    registry.add("other", model_folder)
    registry.record_deployment("other@v1")
    assert registry.deployed() == registry.get("other@v1")
    assert registry.deployed("tiny") == registry.get("tiny@v1")
    assert registry.deployed("third") is None
    with pytest.raises(JobError):
        registry.record_deployment("tiny@v3")


def _take(database: ControlDatabase, clock: FakeClock) -> leases.JobLease:
    with database.write() as session:
        lease = job_queue.lease_next_job(session, owner="somebody", now=clock.now, until=clock.now)
    assert lease is not None
    return lease


def test_adds_at_once_get_versions_of_their_own(registry: Registry, model_folder: Path, data_dir: DataDir) -> None:
    script = (
        "import sys; from spanloop.training.models.registry import Registry; "
        "Registry(sys.argv[1]).add('tiny', sys.argv[2])"
    )
    command = [sys.executable, "-c", script, str(data_dir.path), str(model_folder)]
    processes = [subprocess.Popen(command) for _ in range(3)]
    wait_until(lambda: all(process.poll() is not None for process in processes))
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert sorted(model.version for model in registry.list("tiny")) == ["v1", "v2", "v3", "v4"]


def test_a_source_that_cannot_be_read_is_named_and_leaves_nothing(registry: Registry, model_folder: Path) -> None:
    (model_folder / "model.safetensors").unlink()
    os.mkfifo(model_folder / "model.safetensors")
    with pytest.raises(JobError, match="no weights"):
        registry.add("tiny", model_folder)
    (model_folder / "model.safetensors").unlink()
    (model_folder / "model.safetensors").symlink_to("/proc/self/mem")
    with pytest.raises(DataDirectoryError, match="could not be copied"):
        registry.add("tiny", model_folder)
    assert [path.name for path in registry.get("tiny").path.parent.iterdir()] == ["v1"]
