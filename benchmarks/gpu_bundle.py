"""Pack what ``gpu.py`` needs on a machine with CUDA torch and neither network nor package index.

    python benchmarks/gpu_bundle.py FOLDER [--python 3.12] [--rows rows.parquet] [--torch-site DIR]

Packed are the packages that the machine's own Python lacks (unpacked wheels of the versions installed here, without
torch), this checkout's code, the rows, and the recipes' figures on this CPU. ``FOLDER`` gets ``part-1``, ``part-2`` and
so on, each of at most 50 MB, and the commands that copy a part, and unpack and run the last one, are printed. Packages
are compressed once and kept in ``FOLDER/packages`` until a version changes.
"""

import argparse
import io
import lzma
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from itertools import count
from pathlib import Path
from typing import Final

from gpu_training import recipes

ROOT: Final = Path(__file__).parents[1]
PACKAGES: Final = (
    "annotated-types", "antlr4-python3-runtime", "cachetools", "codetiming", "datasets", "dill", "fastapi",
    "hydra-core", "importlib_metadata", "jsonschema", "jsonschema-specifications", "lazy-importer", "lz4",
    "msgspec", "multiprocess", "omegaconf", "opentelemetry-api", "orjson", "polars", "polars-runtime-32",
    "pydantic", "pydantic-core", "pydantic-settings", "pylatexenc", "python-dotenv", "pyvers", "pyzmq", "ray",
    "referencing", "rpds-py", "starlette", "tensordict", "tokenizers", "torchdata", "TransferQueue", "transformers",
    "typing-inspection", "uvicorn", "verl",
)  # fmt: skip
"""What training imports and a usual image with torch lacks, or has in a version that verl does not work with."""
LEFT_OUT: Final = ("ray/jars/", "ray/rllib/", "ray/dashboard/client/")
"""Parts of packages that training does not read."""
PART_BYTES: Final = 44_000_000
TARGET: Final = "/opt/spanloop-gpu"
_PLATFORMS: Final = tuple(f"manylinux_2_{number}_x86_64" for number in (39, 35, 34, 31, 28, 27, 26, 24, 17, 12, 5))
_OLD_PLATFORMS: Final = ("manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64")
_FILTERS: Final = [{"id": lzma.FILTER_X86}, {"id": lzma.FILTER_LZMA2, "preset": 3, "dict_size": 1 << 25}]
_UNPACK: Final = '''"""Unpack the bundle beside this file."""
import lzma, pathlib, tarfile
folder = pathlib.Path(__file__).parent

class Joined:
    def __init__(self, paths):
        self._files = [path.open("rb") for path in paths]
    def read(self, size):
        for file in self._files:
            data = file.read(size)
            if data:
                return data
        return b""

with tarfile.open(fileobj=Joined(sorted(folder.glob("bundle.*"))), mode="r|", bufsize=1 << 20) as bundle:
    for archive in bundle:
        with lzma.open(bundle.extractfile(archive)) as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
            tar.extractall(folder / archive.name.partition("/")[0], filter="fully_trusted")
paths = [folder / "site", *sorted(folder.glob("code/*/src"))]
(folder / "environment").write_text("export PYTHONPATH=" + ":".join(map(str, paths)) + "\\n")
'''


def main() -> None:
    """Write the parts and print the commands."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--python", default="3.12", help="version on the machine with the GPU")
    parser.add_argument("--rows", type=Path, help="of gpu_rows.py; written by it when left out")
    options = parser.parse_args()
    folder: Path = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    bench = folder / "bench"
    bench.mkdir(exist_ok=True)
    if options.rows:
        shutil.copy(options.rows, bench / "rows.parquet")
    elif not (bench / "rows.parquet").exists():
        subprocess.run(
            [sys.executable, str(ROOT / "benchmarks" / "gpu_rows.py"), str(bench / "rows.parquet")], check=True
        )
    recipes.record(bench)
    archives = [(f"site/{path.name}", path) for path in pack_packages(folder / "packages", options.python)]
    code = folder / "code.tar.xz"
    with tar_xz(code) as tar:
        add_code(tar)
        for name in ("rows.parquet", "expected.json", "model"):
            tar.add(bench / name, f"bench/{name}")
    print_commands(folder, write_parts(folder, [*archives, ("code/code.tar.xz", code)]))


class tar_xz:  # noqa: N801 - a context manager
    """Write a tar archive that is compressed for machine code."""

    def __init__(self, path: Path) -> None:
        self._stream = lzma.open(path, "wb", format=lzma.FORMAT_XZ, filters=_FILTERS)  # noqa: SIM115 - closed on exit
        self._tar = tarfile.open(fileobj=self._stream, mode="w|")  # noqa: SIM115

    def __enter__(self) -> tarfile.TarFile:
        return self._tar

    def __exit__(self, *_: object) -> None:
        self._tar.close()
        self._stream.close()


def pack_packages(folder: Path, python: str) -> list[Path]:
    """Return one archive for each package, for a version of Python; the package index has what is not there."""
    folder.mkdir(exist_ok=True)
    wheels = folder / f"wheels-{python}"
    missing = [name for name in PACKAGES if not any(wheels.glob(f"{_file_name(name)}-{version(name)}-*.whl"))]
    if missing:
        _download([f"{name}=={version(name)}" for name in missing], wheels, python)
    # the largest first
    paths = sorted(wheels.glob("*.whl"), key=lambda path: -path.stat().st_size)
    with ProcessPoolExecutor(max_workers=3) as pool:
        return list(pool.map(pack_wheel, paths))


def pack_wheel(wheel: Path) -> Path:
    """Return the archive of a wheel's files, beside it; made unless it is there."""
    archive = wheel.with_suffix(".tar.xz")
    if not archive.exists():
        partial = archive.with_suffix(".partial")
        with tar_xz(partial) as tar:
            for info, content in _wheel_files(wheel):
                tar.addfile(info, io.BytesIO(content))
        partial.rename(archive)
        print(f"packed {wheel.name}: {archive.stat().st_size:,} bytes", flush=True)
    return archive


def _file_name(package: str) -> str:
    """Return the name of a package as its wheels have it."""
    return package.lower().replace("-", "_")


def _download(requirements: list[str], wheels: Path, python: str) -> None:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    platforms = [text for name in (*_PLATFORMS, *_OLD_PLATFORMS) for text in ("--platform", name)]
    pure = [text for text in requirements if text.startswith("antlr4")]  # has no wheel on the index
    binary = [text for text in requirements if text not in pure]
    only = ["--no-deps", "--only-binary=:all:", "--implementation", "cp", "--python-version", python]
    if binary:
        subprocess.run([*pip, "download", "--quiet", "--dest", str(wheels), *only, *platforms, *binary], check=True)
    if pure:
        subprocess.run([*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", str(wheels), *pure], check=True)


def _wheel_files(wheel: Path) -> Iterator[tuple[tarfile.TarInfo, bytes]]:
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            if entry.is_dir() or entry.filename.startswith(LEFT_OUT):
                continue
            info = tarfile.TarInfo(entry.filename)
            info.size, info.mode = entry.file_size, entry.external_attr >> 16 & 0o777 or 0o644
            yield info, archive.read(entry)


def add_code(tar: tarfile.TarFile) -> None:
    """Add the packages of this checkout and the benchmark."""
    sources = [
        *ROOT.glob("*/src"),
        *(ROOT / "benchmarks" / name for name in ("gpu.py", "gpu_report.py", "gpu_training")),
    ]
    sources.append(ROOT / "Makefile")
    for source in sources:
        if source.exists():
            tar.add(source, str(source.relative_to(ROOT)), filter=_without_bytecode)


def _without_bytecode(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if "__pycache__" in info.name else info


def write_parts(folder: Path, archives: list[tuple[str, Path]]) -> int:
    """Write the archives by their names, cut into parts, with the program that unpacks them; return their number."""
    for old in folder.glob("part-*"):
        shutil.rmtree(old)
    whole = folder / "bundle.tar"
    with tarfile.open(whole, "w") as tar:
        for name, path in archives:
            tar.add(path, name)
    with whole.open("rb") as stream:
        for part in count(1):
            data = stream.read(PART_BYTES)
            if not data:
                break
            target = folder / f"part-{part}"
            target.mkdir()
            (target / f"bundle.{part:02}").write_bytes(data)
            (target / "unpack.py").write_text(_UNPACK)
    whole.unlink()
    return part - 1


def print_commands(folder: Path, parts: int) -> None:
    """Print what to run on the machine, in order, with the parts in its current folder."""
    for number in range(1, parts):
        print(f"mkdir -p {TARGET} && cp {folder.name}/part-{number}/* {TARGET}/")
    print(
        f"mkdir -p {TARGET} && cp {folder.name}/part-{parts}/* {TARGET}/ && python3 {TARGET}/unpack.py && "
        f". {TARGET}/environment && python3 {TARGET}/code/benchmarks/gpu.py --folder {TARGET}/code/bench"
    )


if __name__ == "__main__":
    main()
