"""The tests of the instrumentation with the lowest and the newest releases of what the core package depends on.

``python -m framework_matrix.dependency_range``; the lowest ones are those of ``pyproject.toml``. The newest ones are
tested with each Python that is installed here as well.
"""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

from .environments import FOLDER, ROOT, build_wheel, run, uv

_LOWEST: Final = "lowest-direct"
_NEWEST: Final = "highest"
_PYTHONS: Final = ("3.12", "3.13", "3.14")
_TESTS: Final = Path("tests/instrumentation")
_TEST_PACKAGES: Final = (
    "aiohttp",
    "httpx",
    "httpx2",
    "hypothesis",
    "openai",
    "opentelemetry-exporter-otlp-proto-http",
    "pip",
    "polars",
    "psutil",
    "pytest",
    "pytest-asyncio",
    "pytest-timeout",
    "requests",
    "urllib3",
)


def _prepare(resolution: str, interpreter: str, wheel: Path) -> Path:
    """Make an environment with the core package, whose dependencies the tests' own packages do not change."""
    folder = FOLDER / "dependencies"
    shutil.rmtree(folder, ignore_errors=True)
    run(uv(), "venv", "--quiet", "--python", interpreter, folder)
    python = folder / "bin" / "python"
    install = (uv(), "pip", "install", "--quiet", "--python", python)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    run(*install, "--resolution", resolution, *project["dependencies"])
    run(*install, wheel)
    installed = run(uv(), "pip", "freeze", "--quiet", "--python", python, "--exclude", "spanloop")
    constraints = folder / "constraints.txt"
    constraints.write_text(installed)
    run(*install, "--constraint", constraints, *_TEST_PACKAGES)
    print(
        run(python, "--version").strip(),
        resolution,
        *(line for line in installed.splitlines() if "opentelemetry" in line or "wrapt" in line),
        flush=True,
    )
    return python


def _test(python: Path) -> bool:
    """Run the tests, and say whether they passed."""
    variables = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    variables["PATH"] = f"{python.parent}{os.pathsep}{variables['PATH']}"
    # the folder's own fixtures only: those of all tests need a server; OpenTelemetry 1.42 warns of what it does itself
    options = ("-q", "-p", "no:cacheprovider", "-W", "ignore:SelectableGroups", "--confcutdir", _TESTS)
    command = (python, "-m", "pytest", *options, _TESTS)
    return subprocess.run(command, cwd=ROOT, env=variables, check=False).returncode == 0


def main() -> int:
    """Test both ends of the range."""
    wheel = build_wheel()
    others = [found for version in _PYTHONS if (found := shutil.which(f"python{version}"))]
    cases = [(_LOWEST, sys.executable), *((_NEWEST, python) for python in (sys.executable, *others))]
    failed = [
        f"{resolution} {python}" for resolution, python in cases if not _test(_prepare(resolution, python, wheel))
    ]
    print(*(f"FAILED {case}" for case in failed), sep="\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
