"""Data sets of jobs in object storage, each the object ``jobs/<stage>/dataset``: every host reads the same rows.

Invariant: of a data set that was erased in part (`dataset_erasing`), the form with the fewest episodes wins, so that no
host brings forgotten rows back. Without object storage nothing here does anything.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from spanloop.foundation.objects import object_storage
from spanloop.foundation.objects.manifest import ObjectManifest
from spanloop.foundation.objects.store import ObjectStore, describe

from .held_out import HELD_OUT_NAME
from .manifest import DATA_NAME, MANIFEST_NAME, Manifest, read_manifest

_FOLDER: Final = "jobs"
_NAME: Final = "dataset"
_DATA: Final = (DATA_NAME, HELD_OUT_NAME)


def synchronise_dataset(
    root: Path, training: str, folder: Path, *, before_change: Callable[[], None] = lambda: None
) -> None:
    """Let a stage's folder and the storage have the same data set, if one of them has one.

    Args:
        root: The data directory.
        training: The stage (``training_ids``).
        folder: Of the stage.
        before_change: Called before the storage changes; raises when another runner has the job.

    Raises:
        ObjectStorageError: The storage cannot be used, or the data set there is damaged.
    """
    storage = object_storage(root)
    if storage is None:
        return
    store, name = storage.store, f"{_FOLDER}/{training}/{_NAME}"
    stored, here = store.find(name), read_manifest(folder)
    if stored is not None and (here is None or _erased_episodes(store, stored) > here.forgotten_episodes):
        _fetch(store, stored, folder)
    elif here is not None and (stored is None or stored.files[MANIFEST_NAME] != describe(folder / MANIFEST_NAME)):
        files = {each: folder / each for each in (*_DATA, MANIFEST_NAME) if (folder / each).exists()}
        written = store.put(name, files, before_manifest=before_change)
        if stored is not None:
            store.replace(written)


def synchronise_all(root: Path, folder: Path) -> None:
    """Let the folder of all jobs and the storage have the same data sets; it raises as `synchronise_dataset`."""
    storage = object_storage(root)
    if storage is not None:
        for training in stored_trainings(storage.store):
            (folder / training).mkdir(parents=True, exist_ok=True)
            synchronise_dataset(root, training, folder / training)


def fetch_missing(root: Path, folder: Path) -> None:
    """Fetch data and manifest of each stored data set that a folder of jobs lacks; it raises as the above."""
    storage = object_storage(root)
    if storage is None:
        return
    for training in stored_trainings(storage.store):
        if not (folder / training / MANIFEST_NAME).exists():
            stored = storage.store.get(f"{_FOLDER}/{training}/{_NAME}")
            storage.store.fetch(stored.filtered(lambda name: name != HELD_OUT_NAME), folder / training)


def stored_trainings(store: ObjectStore) -> list[str]:
    """Return the stages whose data set is stored."""
    end = f"/{_NAME}"
    names = (name.removeprefix(f"{_FOLDER}/") for name in store.names(_FOLDER))
    return [name.removesuffix(end) for name in names if name.endswith(end) and name.count("/") == 1]


def _fetch(store: ObjectStore, stored: ObjectManifest, folder: Path) -> None:
    """Replace the files of a folder, the manifest last."""
    with tempfile.TemporaryDirectory(prefix=".dataset-", dir=folder) as incoming:
        store.fetch(stored, Path(incoming))
        (folder / MANIFEST_NAME).unlink(missing_ok=True)
        for each in sorted(stored.files, key=lambda name: name == MANIFEST_NAME):
            (Path(incoming) / each).replace(folder / each)


def _erased_episodes(store: ObjectStore, stored: ObjectManifest) -> int:
    with tempfile.TemporaryDirectory() as folder:
        store.fetch(stored.filtered(lambda name: name == MANIFEST_NAME), Path(folder))
        return Manifest.model_validate_json((Path(folder) / MANIFEST_NAME).read_bytes()).forgotten_episodes
