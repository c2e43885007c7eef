"""The core package beside popular packages: uv and pip take the same release of them as without it.

``python -m framework_matrix.resolution [PACKAGE ...]``; nothing is installed.
"""

import json
import sys
from pathlib import Path
from typing import Final

from .environments import FOLDER, CommandFailedError, build_wheel, resolve, run

PACKAGES: Final = (
    "google-adk",
    "langfuse",
    "agentscope",
    "logfire",
    "arize-phoenix",
    "crewai",
    "semantic-kernel",
    "agentops",
    "livekit-agents",
    "ray",
)


def _resolve_with_pip(package: str, wheel: Path) -> str:
    python = FOLDER / "pip" / "bin" / "python"
    if not python.exists():
        run(sys.executable, "-m", "venv", FOLDER / "pip")
    options = ("--dry-run", "--quiet", "--ignore-installed", "--report", "-")
    report = run(python, "-m", "pip", "install", *options, wheel, package, timeout_s=600)
    names = {item["metadata"]["name"].lower(): item["metadata"]["version"] for item in json.loads(report)["install"]}
    return str(names.get(package, "absent"))


def check(package: str, wheel: Path) -> str:
    """Resolve one package alone and beside the core package; return a line that says what came out."""
    alone = resolve(package)
    versions: dict[str, str] = {}
    for tool in ("uv", "pip"):
        try:
            beside = f"spanloop @ {wheel.as_uri()}"
            version = resolve(package, beside) if tool == "uv" else _resolve_with_pip(package, wheel)
        except CommandFailedError as error:
            version = str(error).strip().splitlines()[-1]
        if version != alone:
            versions[tool] = version
    problems = "; ".join(f"{tool} takes {version}" for tool, version in versions.items())
    return f"FAILED {package} {alone}: {problems}" if problems else f"ok {package} {alone}"


def main() -> int:
    """Check the named packages, or all of them."""
    wheel = build_wheel()
    lines: list[str] = []
    for package in sys.argv[1:] or PACKAGES:
        lines.append(check(package, wheel))
        print(lines[-1], flush=True)
    return 1 if any(line.startswith("FAILED") for line in lines) else 0


if __name__ == "__main__":
    sys.exit(main())
