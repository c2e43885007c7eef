"""An environment of its own for each row, made with uv, with this repository's core package and its newest releases."""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

from .rows import Row

ROOT: Final = Path(__file__).resolve().parents[3]
FOLDER: Final = ROOT / ".frameworks"
"""Environments, the wheel and recorded runs; git ignores it."""
APPS: Final = ROOT / "tests" / "frameworks" / "apps"


class CommandFailedError(Exception):
    """A command ended with an error; the text is the end of what it printed."""


class Environment(NamedTuple):
    """An environment that can run a row's app."""

    folder: Path
    versions: dict[str, str]
    """Package → version, for all packages."""
    command: tuple[str, ...]
    """What runs the row's app, recorded."""
    plain_command: tuple[str, ...]
    """What runs it without telemetry."""


def run(*command: str | Path, timeout_s: float = 900) -> str:
    """Run a command in the repository and return its standard output.

    Raises:
        CommandFailedError: It exited with another status than 0, or took too long.
    """
    try:
        done = subprocess.run(
            [str(part) for part in command], cwd=ROOT, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise CommandFailedError(f"{command[0]} took longer than {timeout_s} s") from error
    if done.returncode:
        raise CommandFailedError((done.stderr or done.stdout).strip()[-2000:])
    return done.stdout


def uv() -> Path:
    """The uv command: the one on the path, else one that is installed into a folder of its own."""
    if path := shutil.which("uv"):
        return Path(path)
    command = FOLDER / "uv" / "bin" / "uv"
    if not command.exists():
        run(sys.executable, "-m", "venv", FOLDER / "uv")
        run(FOLDER / "uv" / "bin" / "python", "-m", "pip", "install", "--quiet", "uv")
    return command


def build_wheel() -> Path:
    """Build this repository's wheel."""
    folder = FOLDER / "wheel"
    shutil.rmtree(folder, ignore_errors=True)
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder)
    return next(folder.glob("*.whl"))


def resolve(package: str, *beside: str, options: tuple[str, ...] = ()) -> str:
    """The release of a package that uv takes, alone or beside others.

    Raises:
        CommandFailedError: There is none.
    """
    with tempfile.NamedTemporaryFile("w", suffix=".in") as requirements:
        requirements.write("\n".join((package, *beside)))
        requirements.flush()
        python = ("--python", sys.executable)
        resolved = run(uv(), "pip", "compile", "--quiet", "--no-header", *python, *options, requirements.name)
    name = re.split(r"[\[<>=]", package)[0]
    pin = re.search(rf"^{re.escape(name)}==(\S+)", resolved, re.MULTILINE)
    return pin[1] if pin else "absent"


def prepare(row: Row, wheel: Path) -> Environment:
    """Make or update the row's environment.

    Raises:
        CommandFailedError: The packages, in the newest release of the first one, cannot be installed beside the core
            package.
    """
    folder = FOLDER / "environments" / "-".join(sorted(row.packages + row.instrumentors))
    python = folder / "bin" / "python"
    if not python.exists():
        run(uv(), "venv", "--quiet", "--python", sys.executable, folder)
    install = (uv(), "pip", "install", "--quiet", "--python", python)
    run(*install, "--upgrade", "--reinstall-package", "spanloop", wheel, *row.packages, *row.instrumentors)
    listed = json.loads(run(uv(), "pip", "list", "--quiet", "--python", python, "--format", "json"))
    versions = {package["name"]: package["version"] for package in listed}
    newest = resolve(row.packages[0], options=("--no-deps",))
    if versions[row.package] != newest:
        raise CommandFailedError(f"{row.package} {versions[row.package]} is installed, and {newest} is the newest")
    command = (folder / "bin" / "opentelemetry-instrument", python, APPS / f"{row.app or row.name}.py")
    return Environment(folder, versions, tuple(map(str, command)), tuple(map(str, command[1:])))
