"""How processes find each other: by a setting first, else by a run file of this machine."""

from pathlib import Path

import pytest

from spanloop.foundation.errors import ConfigurationError, DataDirectoryError
from spanloop.foundation.paths import DataDir
from spanloop.semconv.environment import ServiceAddress, read_setting


def test_an_address_of_a_setting_wins_over_the_run_file(data_dir: DataDir, monkeypatch: pytest.MonkeyPatch) -> None:
    assert data_dir.find("gateway") is None
    with data_dir.announce("gateway", "http://127.0.0.1:1/"):
        assert data_dir.find("gateway") == ServiceAddress("gateway", "http://127.0.0.1:1", is_configured=False)
        monkeypatch.setenv("SPANLOOP_GATEWAY_URL", "https://gateway.example/")
        assert data_dir.find("gateway") == ServiceAddress("gateway", "https://gateway.example", is_configured=True)
        assert data_dir.find("collector") is None


@pytest.mark.parametrize(
    "url", ["gateway:8010", "ftp://gateway", "http://me:secret@gateway:8010", "http://g/?key=secret"]
)
def test_an_address_that_is_none_is_refused_without_its_secret(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv("SPANLOOP_GATEWAY_URL", url)
    with pytest.raises(ConfigurationError, match="SPANLOOP_GATEWAY_URL is not the base URL of a gateway") as refused:
        data_dir.find("gateway")
    assert "secret" not in str(refused.value)


def test_a_secret_comes_from_the_variable_or_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("from the file\n")
    file = str(tmp_path / "key")
    assert read_setting("SPANLOOP_KEY", {}) == ""
    assert read_setting("SPANLOOP_KEY", {"SPANLOOP_KEY": "direct"}) == "direct"
    assert read_setting("SPANLOOP_KEY", {"SPANLOOP_KEY_FILE": file}) == "from the file"
    with pytest.raises(ConfigurationError, match="both set") as refused:
        read_setting("SPANLOOP_KEY", {"SPANLOOP_KEY": "direct", "SPANLOOP_KEY_FILE": file})
    assert "direct" not in str(refused.value)


@pytest.mark.parametrize(("content", "said"), [(None, "No such file"), (b"\n", "is empty"), (b"\xff", "not text")])
def test_a_secrets_file_that_holds_none_is_named(tmp_path: Path, content: bytes | None, said: str) -> None:
    file = tmp_path / "key"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigurationError, match=said) as refused:
        read_setting("SPANLOOP_KEY", {"SPANLOOP_KEY_FILE": str(file)})
    assert str(file) in str(refused.value)


def test_models_jobs_and_keys_are_in_the_shared_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = tmp_path / "shared"
    monkeypatch.setenv("SPANLOOP_SHARED_DIR", str(shared))
    here = DataDir(tmp_path / "here")
    with pytest.raises(DataDirectoryError, match="which is not a directory") as refused:
        here.open()
    assert refused.value.next_step.endswith(f"mkdir -p {shared}")
    shared.mkdir()
    here.open()
    assert (here.models, here.jobs, here.keys) == (shared / "models", shared / "jobs", shared / "keys.json")
    assert (here.spool, here.gateway, here.logs) == (here.path / "spool", here.path / "gateway", here.path / "logs")
