"""The cache of objects: within its limit, least recently used first, and never without what is in use."""

import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from spanloop.foundation.errors import ObjectStorageError
from spanloop.foundation.objects import open_store
from spanloop.foundation.objects.cache import ObjectCache
from spanloop.foundation.objects.store import ObjectStore, files_below

SIZE = 1000
HOLDER = """
import sys
from pathlib import Path
from spanloop.foundation.objects import open_store
from spanloop.foundation.objects.cache import ObjectCache
url, folder, limit, name = sys.argv[1:]
copy = ObjectCache(Path(folder), int(limit)).acquire(open_store(url), name)
print(copy.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    """Four objects of one size, in a folder."""
    store = open_store(f"file://{tmp_path}/storage")
    for number in range(4):
        folder = tmp_path / f"source-{number}"
        folder.mkdir()
        (folder / "weights.safetensors").write_bytes(bytes([number]) * (SIZE - 2))
        (folder / "config.json").write_bytes(b"{}")
        store.put(f"models/m/{number}", files_below(folder))
    return store


def copies(cache: Path) -> set[str]:
    return {path.name.split("@")[0] for path in cache.iterdir() if path.is_dir()}


def test_the_least_recently_used_copies_go_first(store: ObjectStore, tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path / "cache", 2 * SIZE)
    for number in (0, 1, 0, 2):
        with cache.use(store, f"models/m/{number}") as folder:
            assert (folder / "weights.safetensors").read_bytes()[0] == number
            assert cache.object_of(folder) == f"models/m/{number}"
    assert copies(tmp_path / "cache") == {"models+m+0", "models+m+2"}
    with cache.use(store, "models/m/2", keeps=lambda name: name == "config.json") as folder:
        assert list(files_below(folder)) == ["config.json"]
    assert copies(tmp_path / "cache") == {"models+m+2"}


def test_a_copy_in_use_stays_and_the_limit_is_named(store: ObjectStore, tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path / "cache", 2 * SIZE)
    first, second = cache.acquire(store, "models/m/0"), cache.acquire(store, "models/m/1")
    with pytest.raises(
        ObjectStorageError, match=r"models/m/2 has 1,000 bytes; .* limited to 2,000, of which 2,000 are"
    ):
        cache.acquire(store, "models/m/2")
    again = cache.acquire(store, "models/m/0")
    first.release()
    with pytest.raises(ObjectStorageError, match="of which 2,000 are in use"):
        cache.acquire(store, "models/m/2")
    again.release()
    third = cache.acquire(store, "models/m/2")
    assert (first.path.exists(), second.path.exists(), third.path.exists()) == (False, True, True)


def test_what_another_process_uses_stays_until_it_is_killed(store: ObjectStore, tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    arguments = [store.url, str(folder), str(SIZE), "models/m/0"]
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdin, process.stdout:
        held = Path(process.stdout.readline().strip())
        cache = ObjectCache(folder, SIZE)
        with pytest.raises(ObjectStorageError, match="of which 1,000 are in use"):
            cache.acquire(store, "models/m/1")
        with cache.use(store, "models/m/0") as shared:
            assert shared == held
        process.send_signal(signal.SIGKILL)
        process.wait()
    with cache.use(store, "models/m/1"):
        assert copies(folder) == {"models+m+1"}


def test_many_users_fetch_once_and_stay_within_the_limit(store: ObjectStore, tmp_path: Path) -> None:
    folder = tmp_path / "cache"

    def use(number: int) -> None:
        with ObjectCache(tmp_path / "wide", 4 * SIZE).use(store, f"models/m/{number % 4}") as copy:
            assert (copy / "weights.safetensors").read_bytes() == bytes([number % 4]) * (SIZE - 2)

    def use_with_evictions(number: int) -> None:
        try:
            with ObjectCache(folder, 2 * SIZE).use(store, f"models/m/{number % 4}") as copy:
                assert (copy / "weights.safetensors").read_bytes() == bytes([number % 4]) * (SIZE - 2)
        except ObjectStorageError as error:
            assert "are in use" in str(error)  # noqa: PT017 - the other users may need all of the room

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(use, range(40)))
        list(threads.map(use_with_evictions, range(80)))
    assert (len(copies(tmp_path / "wide")), len(copies(folder))) == (4, 2)
    assert not list(folder.glob("*.incoming"))


def test_a_killed_fetch_goes_on_or_makes_room(store: ObjectStore, tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    cache = ObjectCache(folder, SIZE)
    entry = cache.acquire(store, "models/m/0").path
    entry.rename(f"{entry}.incoming")  # as a process leaves it that is killed before the copy is complete
    (entry.with_name(f"{entry.name}.incoming") / "config.json").write_text("torn")
    with cache.use(store, "models/m/0") as again:
        assert (again / "config.json").read_text() == "{}"
    entry.rename(f"{entry}.incoming")
    with cache.use(store, "models/m/1"):
        assert [path.name for path in folder.iterdir() if ".incoming" in path.name] == []
