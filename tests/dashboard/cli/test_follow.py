"""Watching a job: its whole log, its end, and a Ctrl-C that leaves it running."""

import signal
import threading
import time
from pathlib import Path

import pytest
import typer

from spanloop.cli.learning.jobs import watch_job, watch_log
from spanloop.foundation.errors import JobError
from spanloop.foundation.paths import DataDir
from spanloop.runtime.job_progress import await_job
from spanloop.training.models.registry import Registry
from spanloop.training.run.job_api import Job, JobApi, JobSpec

from .support import eventually


@pytest.fixture
def data_dir(tmp_path: Path) -> DataDir:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")
    directory = DataDir(tmp_path / "data").open()
    Registry(directory).add("tiny", folder)
    return directory


@pytest.fixture
def job(data_dir: DataDir) -> Job:
    """A queued job that nobody runs."""
    return JobApi(data_dir).submit(JobSpec.of(kind="grpo", base="tiny"))


def test_the_log_is_printed_as_it_grows_until_the_job_ends(
    data_dir: DataDir, job: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    api = JobApi(data_dir)
    log = data_dir.jobs / job.id / "log.txt"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_bytes("first [bold] :warning: caf\N{LATIN SMALL LETTER E WITH ACUTE}".encode()[:-1])
    watcher = threading.Thread(target=watch_log, args=(api, data_dir, job.id))
    watcher.start()
    printed = ""

    def has_printed(text: str) -> bool:
        nonlocal printed
        printed += capsys.readouterr().out
        return text in printed

    assert eventually(lambda: has_printed("caf"))
    with log.open("ab") as file:
        file.write("\N{LATIN SMALL LETTER E WITH ACUTE}\nlast\n".encode()[1:])
    api.cancel(job.id)
    watcher.join(60)
    assert not watcher.is_alive()
    assert has_printed("first [bold] :warning: caf\N{LATIN SMALL LETTER E WITH ACUTE}\nlast\n")


def test_a_cancelled_job_says_where_its_log_is(data_dir: DataDir, job: Job) -> None:
    api = JobApi(data_dir)
    api.cancel(job.id)
    seen: list[Job] = []
    with pytest.raises(JobError) as caught:
        await_job(api, data_dir, job.id, seen.append)
    assert caught.value.next_step == f"Read spanloop jobs log {job.id} --data-dir {data_dir.path}"
    assert [each.id for each in seen] == [job.id]


def test_ctrl_c_ends_the_watching_and_not_the_job(
    data_dir: DataDir, job: Job, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(_: float) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(time, "sleep", interrupt)
    with pytest.raises(typer.Exit) as left:
        watch_job(JobApi(data_dir), data_dir, job.id)
    assert left.value.exit_code == 130
    assert f"spanloop jobs wait {job.id}" in capsys.readouterr().err
    assert not JobApi(data_dir).get(job.id).is_finished
