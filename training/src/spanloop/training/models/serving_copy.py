# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# safetensors and ml_dtypes are only partly typed.
"""The folder that the engine loads for a model version: the version's folder, or a copy with untied embeddings.

An engine that replaces weights in place silently keeps the old ``lm_head`` if the embeddings are tied. So such a
version gets a copy with a separate ``lm_head`` tensor, in bfloat16. The copy is ``<version>.serving`` beside the
version; it is created once, with checksums, and appears complete or not at all. It needs no torch: a dashboard or a
command line without the training extra makes it too. Weights are written in parts, so memory holds one part and one
tensor.

Invariant: a conversion to bfloat16 rounds to the nearest value, ties to even, and keeps NaN, as torch does.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import ml_dtypes
import numpy as np
import numpy.typing as npt
from safetensors import safe_open
from safetensors.numpy import save_file

from spanloop.foundation.errors import JobError
from spanloop.foundation.paths.checksums import CHECKSUMS_FILE, write_checksums

from .files.weights import INDEX_FILE, OUTPUT_LAYER, read_header
from .registry import ModelVersion

_EMBEDDINGS: Final = ("embed_tokens.weight", "wte.weight")
_WEIGHTS: Final = "model.safetensors"
_PART_BYTES: Final = 512 << 20
_FLOATS: Final = frozenset(map(np.dtype, (np.float16, np.float32, np.float64)))

_Array = npt.NDArray[Any]


def serving_path(version: ModelVersion) -> Path:
    """Return the folder that the engine loads; the first call creates the untied copy if ``version`` needs one.

    Raises:
        JobError: The folder has no safetensors weights, incomplete ones, or no embeddings tensor.
    """
    shards = sorted(version.path.glob("*.safetensors"))
    if not shards:
        raise JobError(f"Model {version.reference} ({version.path}) has no *.safetensors to serve.")
    if any(OUTPUT_LAYER in read_header(shard) for shard in shards):
        return version.path
    target = version.path.with_name(f"{version.path.name}.serving")
    if not target.exists():
        _create_untied(version, shards, target)
    return target


def _create_untied(version: ModelVersion, shards: Sequence[Path], target: Path) -> None:
    temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        _copy_weights(version, shards, temporary)
        for path in version.path.iterdir():
            if path.is_file() and path.suffix != ".safetensors" and path.name not in {CHECKSUMS_FILE, INDEX_FILE}:
                shutil.copy2(path, temporary / path.name)
        _edit_json(temporary / "config.json", tie_word_embeddings=False, dtype="bfloat16")
        for path in temporary.iterdir():
            with path.open("rb") as file:
                os.fsync(file.fileno())
        write_checksums(temporary)
        temporary.chmod(0o755)
        _rename_into_place(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _copy_weights(version: ModelVersion, shards: Sequence[Path], folder: Path) -> None:
    """Write all tensors as bfloat16, with ``lm_head``, and an index where there are several files."""
    weight_map: dict[str, str] = {}
    for number, part in enumerate(_parts(shards), start=1):
        file = f"model-{number:05}.safetensors"
        save_file(part, folder / file, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(part, file)
    if OUTPUT_LAYER not in weight_map:
        raise JobError(
            f"Model {version.reference} ({version.path}) has neither {OUTPUT_LAYER} nor a tensor ending with "
            f"{' or '.join(_EMBEDDINGS)}.",
            next_step="Save it with untied embeddings and add it again: spanloop models add.",
        )
    files = set(weight_map.values())
    if len(files) == 1:
        (folder / files.pop()).rename(folder / _WEIGHTS)
    else:
        (folder / INDEX_FILE).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}, indent=1))


def _parts(shards: Sequence[Path]) -> Iterator[dict[str, _Array]]:
    """Yield tensors in bfloat16, in parts that are emptied afterwards; the embeddings occur as ``lm_head`` too."""
    part: dict[str, _Array] = {}
    has_head = False
    for path in shards:
        with safe_open(path, framework="np") as file:
            for name in file.offset_keys():
                values = _bfloat16_tensor(path, file, name)
                if part and values.nbytes + sum(each.nbytes for each in part.values()) > _PART_BYTES:
                    yield part
                    part.clear()
                part[name] = values
                if name.endswith(_EMBEDDINGS) and not has_head:
                    part[OUTPUT_LAYER] = values
                    has_head = True
    if part:
        yield part


def _bfloat16_tensor(path: Path, file: Any, name: str) -> _Array:
    """Return a tensor in bfloat16; one of integers as it is."""
    try:
        values: _Array = file.get_tensor(name)
    except AttributeError as error:  # NumPy has no such type
        raise JobError(
            f"{path}: tensor {name!r} is of type {file.get_slice(name).get_dtype()}, which cannot be copied.",
            next_step="Save the model with untied embeddings, or in bfloat16, and add it again: spanloop models add.",
        ) from error
    if values.dtype not in _FLOATS:
        return values
    with np.errstate(over="ignore"):  # beyond float32 is infinite, as in torch
        return values.astype(ml_dtypes.bfloat16)


def _rename_into_place(temporary: Path, target: Path) -> None:
    try:
        temporary.rename(target)
    except OSError:
        # Another process created the same copy meanwhile.
        if not target.exists():
            raise


def _edit_json(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes, indent=2))
