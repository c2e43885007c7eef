"""The folder that the engine loads for a model version: the version's folder, or a copy with untied embeddings.

An engine that replaces weights in place silently keeps the old ``lm_head`` if the embeddings are tied. So such a
version gets a copy with a separate ``lm_head`` tensor, in bfloat16. The copy is ``<version>.serving`` beside the
version; it is created once, with checksums, and appears complete or not at all. It needs no torch: a dashboard or a
command line without the training extra makes it too.
"""

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, Final

from spanloop.foundation.errors import JobError
from spanloop.foundation.paths.checksums import CHECKSUMS_FILE, write_checksums

from .files.safetensors_file import SafetensorsFile, write_safetensors
from .registry import ModelVersion

_HEAD: Final = "lm_head.weight"
_EMBEDDINGS: Final = ("embed_tokens.weight", "wte.weight")


def serving_path(version: ModelVersion) -> Path:
    """Return the folder that the engine loads; the first call creates the untied copy if ``version`` needs one.

    Raises:
        JobError: The folder has no safetensors weights, or no embeddings tensor.
    """
    shards = [SafetensorsFile.open(path) for path in sorted(version.path.glob("*.safetensors"))]
    if not shards:
        raise JobError(f"Model {version.reference} ({version.path}) has no *.safetensors to serve.")
    if any(tensor.name == _HEAD for shard in shards for tensor in shard.tensors):
        return version.path
    target = version.path.with_name(f"{version.path.name}.serving")
    if not target.exists():
        _create_untied(version, shards, target)
    return target


def _create_untied(version: ModelVersion, shards: list[SafetensorsFile], target: Path) -> None:
    temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        head_file = _copy_weights(version, shards, temporary)
        for path in version.path.iterdir():
            if path.is_file() and path.suffix != ".safetensors" and path.name != CHECKSUMS_FILE:
                shutil.copy2(path, temporary / path.name)
        _edit_json(temporary / "config.json", tie_word_embeddings=False, dtype="bfloat16")
        index = temporary / "model.safetensors.index.json"
        if index.exists():
            weight_map = json.loads(index.read_text())["weight_map"]
            _edit_json(index, weight_map=weight_map | {_HEAD: head_file})
        for path in temporary.iterdir():
            with path.open("rb") as file:
                os.fsync(file.fileno())
        write_checksums(temporary)
        temporary.chmod(0o755)
        _rename_into_place(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _copy_weights(version: ModelVersion, shards: list[SafetensorsFile], folder: Path) -> str:
    """Copy every shard as bfloat16; return the name of the file that holds ``lm_head``."""
    head_file = ""
    for shard in shards:
        tensors = [tensor.as_bfloat16() for tensor in shard.tensors]
        embeddings = next((tensor for tensor in tensors if tensor.name.endswith(_EMBEDDINGS)), None)
        if embeddings is not None:
            tensors.append(embeddings._replace(name=_HEAD))
            head_file = shard.path.name
        write_safetensors(folder / shard.path.name, tensors)
    if not head_file:
        raise JobError(
            f"Model {version.reference} ({version.path}) has neither {_HEAD} nor a tensor ending with "
            f"{' or '.join(_EMBEDDINGS)}.",
            next_step="Save it with untied embeddings and add it again: spanloop models add.",
        )
    return head_file


def _rename_into_place(temporary: Path, target: Path) -> None:
    try:
        temporary.rename(target)
    except OSError:
        # Another process created the same copy meanwhile.
        if not target.exists():
            raise


def _edit_json(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes, indent=2))
