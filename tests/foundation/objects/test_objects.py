"""Objects in S3: complete or absent, sent again where they were, and never believed without a checksum."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from spanloop.foundation.errors import ConfigurationError, ObjectStorageError
from spanloop.foundation.objects import object_storage, open_store
from spanloop.foundation.objects.manifest import ObjectManifest
from spanloop.foundation.objects.remote import Remote
from spanloop.foundation.objects.store import ObjectStore, files_below
from spanloop.semconv.environment import STORAGE_CACHE_BYTES_ENV, STORAGE_URL_ENV

from ...object_server import Fault, FaultyProxy, ObjectServer, object_server

PART = 64 * 1024
FILES = {"config.json": b"{}", "model.safetensors": os.urandom(3 * PART), "deep/er/vocab.txt": b"a b", "empty": b""}
UPLOADER = """
import sys
from pathlib import Path
from spanloop.foundation.objects.remote import Remote
from spanloop.foundation.objects.store import ObjectStore, files_below
url, name, folder = sys.argv[1:]
def progress(doing, completed, total):
    print(doing, flush=True)
    sys.stdin.readline()
ObjectStore(Remote(url, part_bytes=64 * 1024)).put(name, files_below(Path(folder)), on_progress=progress)
print("complete", flush=True)
"""


@pytest.fixture(scope="module")
def s3() -> Iterator[ObjectServer]:
    with object_server(least_part_bytes=PART) as running:
        yield running


class Place(NamedTuple):
    """Objects below a URL of their own."""

    store: ObjectStore
    proxy: FaultyProxy
    folder: Path
    """With `FILES`."""


@pytest.fixture
def place(
    s3: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Place]:
    monkeypatch.setattr("spanloop.foundation.objects.remote._PAUSES_S", (0.01,) * 5)
    folder = tmp_path / "folder"
    for name, content in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    with s3.used(request.node.name) as url:
        yield Place(ObjectStore(Remote(url, part_bytes=PART)), s3.proxy, folder)


def put(place: Place, name: str = "models/m/1") -> ObjectManifest:
    return place.store.put(name, files_below(place.folder))


def fetched(place: Place, target: Path, name: str = "models/m/1") -> dict[str, bytes]:
    place.store.fetch(place.store.get(name), target)
    return {name: path.read_bytes() for name, path in files_below(target).items()}


def test_an_object_is_a_folder_with_a_manifest_and_is_sent_once(place: Place, tmp_path: Path) -> None:
    assert place.store.find("models/m/1") is None
    manifest = put(place)
    assert place.proxy.requests[-1].endswith("/manifest.json")
    assert len(place.proxy.sent("PUT .*partNumber=")) == 3
    assert fetched(place, tmp_path / "copy") == FILES
    assert (place.store.find("models/m/1"), place.store.names("models")) == (manifest, ["models/m/1"])
    place.proxy.requests.clear()
    assert put(place) == manifest
    assert place.proxy.sent("PUT|POST") == []
    (place.folder / "config.json").write_text("[]")
    changed = put(place)
    assert [len(place.proxy.sent("PUT .*/files/")), len(place.proxy.sent("PUT .*/manifest.json"))] == [1, 1]
    place.store.replace(changed.filtered(lambda name: name == "config.json"))
    assert fetched(place, tmp_path / "rest") == {"config.json": b"[]"}
    place.store.remove("models/m/1")
    assert (place.store.find("models/m/1"), place.store.names("")) == (None, [])


@pytest.mark.parametrize("fault", [Fault.SERVER_ERROR, Fault.RESET, Fault.SLOW, Fault.LOST])
def test_an_upload_outlives_faults(place: Place, tmp_path: Path, fault: Fault) -> None:
    for request in ("PUT .*partNumber=2", "POST .*uploadId=", "PUT .*manifest.json", "POST .*uploads", "GET .*prefix="):
        place.proxy.fail(fault, request)
    put(place)
    assert place.proxy.rules == []
    assert fetched(place, tmp_path / "copy") == FILES


@pytest.mark.parametrize(
    "fault", [Fault.SERVER_ERROR, Fault.RESET, Fault.SLOW, Fault.TRUNCATED, Fault.FLIPPED, Fault.LOST]
)
def test_a_download_outlives_faults(place: Place, tmp_path: Path, fault: Fault) -> None:
    manifest = put(place)
    blob = manifest.files["model.safetensors"].sha256
    place.proxy.fail(fault, f"GET .*{blob}", times=1 if fault is Fault.FLIPPED else 2)
    assert fetched(place, tmp_path / "copy") == FILES
    assert place.proxy.rules == []


def test_an_outage_ends_with_a_sentence_and_leaves_no_object(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spanloop.foundation.objects.remote._PAUSES_S", (0.01,))
    place.proxy.fail(Fault.SERVER_ERROR, "PUT .*/manifest.json", times=1000)
    with pytest.raises(ObjectStorageError, match=r"Writing models/m/1/manifest\.json at s3://spanloop-test/.* failed"):
        put(place)
    assert place.store.find("models/m/1") is None
    with pytest.raises(ObjectStorageError, match="There is no complete object models/m/1 at s3://"):
        place.store.get("models/m/1")
    place.proxy.rules.clear()
    place.proxy.requests.clear()
    put(place)
    assert len(place.proxy.sent("PUT .*/files/")) == 0


def test_a_wrong_file_is_refused_and_named(place: Place, tmp_path: Path) -> None:
    manifest = put(place)
    blob = manifest.files["config.json"].sha256
    Remote(place.store.url).write(f"models/m/1/files/{blob}", b"[]")  # of the same size
    with pytest.raises(ObjectStorageError, match=r"config\.json of the object models/m/1 .* got SHA-256 .*expected"):
        fetched(place, tmp_path / "copy")
    assert not (tmp_path / "copy" / "config.json").exists()
    Remote(place.store.url).remove([f"models/m/1/files/{blob}"])
    with pytest.raises(ObjectStorageError, match=r"config\.json of the object models/m/1 is missing"):
        fetched(place, tmp_path / "other")


@pytest.mark.parametrize(
    "moments", [(2,), pytest.param(tuple(range(len(FILES))), marks=pytest.mark.slow, id="after each file")]
)
def test_a_killed_upload_is_no_object_and_goes_on_where_it_was(
    place: Place, tmp_path: Path, moments: tuple[int, ...]
) -> None:
    for killed_after in moments:
        name = f"models/m/{killed_after}"
        process = subprocess.Popen(
            [sys.executable, "-c", UPLOADER, place.store.url, name, str(place.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        with process.stdin, process.stdout:
            for _ in range(killed_after):
                process.stdout.readline()
                process.stdin.write(b"\n")
                process.stdin.flush()
            process.stdout.readline()
            process.send_signal(signal.SIGKILL)
            process.wait()
        assert place.store.find(name) is None
        place.proxy.requests.clear()
        put(place, name)
        resent = set(place.proxy.sent("(PUT|POST) .*/files/"))
        assert len({each.split("?")[0].split()[1] for each in resent}) == len(FILES) - killed_after - 1
        assert fetched(place, tmp_path / str(killed_after), name) == FILES


def test_the_settings_name_the_storage_or_say_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert object_storage(tmp_path) is None
    for url, reason in (
        ("s3://key:secret@bucket", "has a password"),
        ("bucket/prefix", "is not the URL of an object storage"),
        ("nowhere://bucket", "cannot be used as object storage: ValueError: Protocol not known: nowhere"),
    ):
        with pytest.raises(ConfigurationError, match=reason) as refused:
            open_store(url)
        assert "secret" not in str(refused.value)
    monkeypatch.setenv(STORAGE_URL_ENV, f"file://{tmp_path}/objects")
    monkeypatch.setenv(STORAGE_CACHE_BYTES_ENV, "many")
    with pytest.raises(ConfigurationError, match="SPANLOOP_STORAGE_CACHE_BYTES: expected a number of bytes above 0"):
        object_storage(tmp_path)


def test_a_folder_is_a_storage_too(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}/storage")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a").write_text("1")
    manifest = store.put("x/y", files_below(tmp_path / "folder"))
    store.fetch(manifest, tmp_path / "copy")
    assert (tmp_path / "copy" / "a").read_text() == "1"
    assert store.names("") == ["x/y"]
    torn = tmp_path / "storage" / "x" / "y" / "manifest.json"
    torn.write_text(torn.read_text()[:20])
    assert store.find("x/y") is None
