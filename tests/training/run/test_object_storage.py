"""Data sets and checkpoints in object storage: an attempt on another host goes on with both."""

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import polars as pl
import pytest

from spanloop.foundation.errors import JobError, ObjectStorageError
from spanloop.foundation.objects import open_store
from spanloop.foundation.objects.remote import Remote
from spanloop.foundation.paths import DataDir
from spanloop.foundation.processes.marked import find_processes
from spanloop.store import Store
from spanloop.training.dataset.dataset_objects import synchronise_dataset
from spanloop.training.dataset.manifest import load_manifest
from spanloop.training.jobs.paths import ControlPaths
from spanloop.training.models.checkpoint_objects import CheckpointObjects
from spanloop.training.models.checkpoints import latest_checkpoint, mark_complete
from spanloop.training.models.registry import Registry
from spanloop.training.run.dataset_erasing import erase_episodes
from spanloop.training.run.job_api import JobApi, JobSpec

from ...object_server import Fault, ObjectServer, object_server
from ..training_running import Runner
from ..training_seeding import seed_groups
from .test_dataset_erasing import dataset


@pytest.fixture(scope="module")
def s3() -> Iterator[ObjectServer]:
    with object_server() as running:
        yield running


@pytest.fixture
def hosts(tmp_path: Path) -> tuple[DataDir, DataDir]:
    return DataDir(tmp_path / "here").open(), DataDir(tmp_path / "there").open()


def training_folder(host: DataDir) -> Path:
    folder = host.jobs / "j1"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def synchronise(host: DataDir) -> Path:
    folder = training_folder(host)
    synchronise_dataset(host.path, "j1", folder)
    return folder


def episodes(folder: Path) -> list[str]:
    assert load_manifest(folder) is not None  # compares the data with the manifest
    return sorted(set(pl.read_parquet(folder / "dataset.parquet")["episode_id"]))


def test_a_data_set_is_read_on_another_host_and_forgotten_rows_do_not_come_back(
    s3: ObjectServer, hosts: tuple[DataDir, DataDir]
) -> None:
    here, there = hosts
    with s3.used("data-set") as url:
        dataset(here, "j1", "alice", "bob")
        synchronise(here)
        assert episodes(synchronise(there)) == ["alice", "bob"]
        assert len(erase_episodes(here, here.jobs, {"alice"})) == 1
        stored = open_store(url).get("jobs/j1/dataset")
        assert len(s3.proxy.sent("PUT .*/files/")) == 4
        assert len(Remote(url).sizes("jobs")) == len(stored.files) + 1
        # the other host has the rows still, and gets the form without them
        assert episodes(synchronise(there)) == ["bob"]
        assert episodes(synchronise(here)) == ["bob"]
        shutil.rmtree(there.jobs)
        assert len(erase_episodes(there, there.jobs, {"bob"})) == 1
        assert episodes(synchronise(here)) == []


def test_an_attempt_without_the_lease_changes_no_stored_data_set(
    s3: ObjectServer, hosts: tuple[DataDir, DataDir]
) -> None:
    def lost() -> None:
        raise JobError("Another runner has the job.")

    with s3.used("fenced") as url:
        folder = dataset(hosts[0], "j1", "alice")
        with pytest.raises(JobError, match="Another runner"):
            synchronise_dataset(hosts[0].path, "j1", folder, before_change=lost)
        assert open_store(url).names("") == []


def checkpoint(folder: Path, step: int) -> Path:
    weights = folder / "checkpoints" / f"global_step_{step}" / "huggingface"
    weights.mkdir(parents=True)
    (weights / "model.safetensors").write_text(f"weights of {step}")
    mark_complete(weights.parent)
    return weights.parent


def objects_of(host: DataDir) -> CheckpointObjects:
    return CheckpointObjects(host.path, "j1", training_folder(host) / "checkpoints", lambda: None)


def wait_until(condition: Callable[[], object], *, timeout_s: float) -> None:
    give_up_at = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < give_up_at, "the condition did not become true in time"
        time.sleep(0.1)


def is_stored_alone(url: str, name: str) -> bool:
    return open_store(url).names("") == [name]


def test_the_newest_complete_checkpoint_is_taken_up_on_another_host(
    s3: ObjectServer, hosts: tuple[DataDir, DataDir], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = hosts
    monkeypatch.setattr("spanloop.training.models.checkpoint_objects._POLL_S", 0.05)
    monkeypatch.setattr("spanloop.foundation.objects.remote._PAUSES_S", ())
    with s3.used("checkpoints") as url:
        objects_of(there).fetch_newest()
        s3.proxy.fail(Fault.LOST, "PUT .*manifest.json")
        s3.proxy.fail(Fault.SERVER_ERROR, "PUT .*/files/", times=5)
        with objects_of(here).sent_beside():
            for step in (1, 2):
                checkpoint(training_folder(here), step)
                wait_until(partial(is_stored_alone, url, f"jobs/j1/checkpoints/global_step_{step}"), timeout_s=60)
            (training_folder(here) / "checkpoints" / "global_step_3").mkdir()  # not complete
        begun = training_folder(there) / "checkpoints" / "global_step_2"
        begun.mkdir(parents=True)
        (begun / "torn").touch()
        objects_of(there).fetch_newest(at_most=1)
        assert latest_checkpoint(begun.parent) is None
        objects_of(there).fetch_newest()
        newest = latest_checkpoint(begun.parent)
        assert newest is not None
        assert (newest.step, (newest.weights_path / "model.safetensors").read_text()) == (2, "weights of 2")
        assert not (begun / "torn").exists()
        objects_of(there).remove()
        assert Remote(url).sizes("jobs") == {}


def test_a_storage_that_is_away_ends_no_training(
    s3: ObjectServer, hosts: tuple[DataDir, DataDir], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spanloop.training.models.checkpoint_objects._POLL_S", 0.05)
    monkeypatch.setattr("spanloop.foundation.objects.remote._PAUSES_S", ())
    here = hosts[0]
    with s3.used("away"):
        checkpoint(training_folder(here), 1)
        s3.proxy.fail(Fault.SERVER_ERROR, "PUT", times=1000)
        with objects_of(here).sent_beside():
            wait_until(lambda: s3.proxy.sent("PUT"), timeout_s=60)
        newest = latest_checkpoint(training_folder(here) / "checkpoints")
        assert newest is not None
        with pytest.raises(ObjectStorageError, match="jobs/j1/checkpoints/global_step_1/files/"):
            objects_of(here).send(newest)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_killed_job_goes_on_on_another_host(
    s3: ObjectServer, runner: Runner, store: Store, tiny_model: Path, tmp_path: Path
) -> None:
    """The second attempt finds nothing of the first on its disk: model, data set and checkpoint come from S3."""
    with s3.used("job") as url:
        seed_groups(store, tiny_model)
        base = Registry(runner.data_dir).add("stored", tiny_model)
        assert base.object_name is not None
        spec = JobSpec.of(kind="sft", base="stored", outcomes="all", steps=40, learning_rate=1e-5, max_passes=100)
        job = runner.submit(spec)
        folder = ControlPaths.of(runner.data_dir).job(job.id)
        process, mark = runner.start(job.id, tmp_path / "log.txt")

        def names() -> list[str]:
            return open_store(url).names(f"jobs/{job.id}/checkpoints")

        wait_until(lambda: names() or process.poll() is not None, timeout_s=400)
        assert process.poll() is None, (tmp_path / "log.txt").read_text()
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        wait_until(lambda: not find_processes(None, mark), timeout_s=120)
        reached = int(names()[-1].rpartition("_")[2])
        shutil.rmtree(folder)
        shutil.rmtree(runner.data_dir.path / "objects")
        runner.requeue(mark)
        process, mark = runner.start(job.id, tmp_path / "log.txt")
        assert process.wait(timeout=400) == 0, (tmp_path / "log.txt").read_text()
        lines = (folder / "metrics-2.jsonl").read_bytes().splitlines()
        assert min(int(line.split(b'"step":')[1].split(b",")[0]) for line in lines) == reached + 1
        trained = Registry(runner.data_dir).get(JobApi(runner.data_dir).get(job.id).model_version)
        assert trained.object_name is not None
        assert names() == []
