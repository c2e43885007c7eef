"""Write ``requirements-<image>.txt``: the versions that an image installs, those of this checkout's environments.

``python docker/pin_requirements.py`` after `make setup`, when pyproject.toml or the serving environment changed. The
training image's CUDA packages are not listed: torch names their exact versions itself.
"""

import re
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import distributions
from pathlib import Path
from typing import Final, NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

FOLDER: Final = Path(__file__).parent
ROOT: Final = FOLDER.parent
EXTRAS: Final = {
    "server": ("dashboard", "postgres", "storage"),
    "training": ("gymnasium", "openenv", "postgres", "storage", "tasks", "train"),
}
"""The extras of spanloop that an image installs."""

_NOT_SHIPPED: Final = frozenset({"pip", "spanloop"})
_LOCAL_VERSION: Final = re.compile(r"\+.*")


class Installed(NamedTuple):
    """One package of an environment."""

    version: str
    """Without a local part such as ``+cpu``: the same line is to find another build of it elsewhere."""
    requires: tuple[str, ...]


def environment(folder: Path) -> dict[str, Installed]:
    """Read the packages of a virtual environment, by their normalised name."""
    paths = [str(path) for path in (folder / "lib").glob("python*/site-packages")]
    return {
        canonicalize_name(each.name): Installed(_LOCAL_VERSION.sub("", each.version), tuple(each.requires or ()))
        for each in distributions(path=paths)
    }


def required(extras: Iterable[str]) -> list[str]:
    """Return the requirements of spanloop with ``extras``, those of the extras that these name included."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    collected = list(project["dependencies"])
    waiting = list(extras)
    while waiting:
        for line in project["optional-dependencies"][waiting.pop()]:
            requirement = Requirement(line)
            if canonicalize_name(requirement.name) == "spanloop":
                waiting.extend(requirement.extras)
            else:
                collected.append(line)
    return collected


def closure(requirements: Iterable[str], installed: dict[str, Installed]) -> dict[str, str]:
    """Return name and version of everything that ``requirements`` need."""
    versions: dict[str, str] = {}
    waiting = [Requirement(line) for line in requirements]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        key = (name, frozenset(requirement.extras))
        if key in seen:
            continue
        seen.add(key)
        if name not in installed:
            raise SystemExit(f"{name} is required and not installed in .venv; run: make setup")
        versions[name] = installed[name].version
        waiting.extend(_applying(installed[name].requires, requirement.extras))
    return versions


def _applying(lines: Iterable[str], extras: Iterable[str]) -> Iterator[Requirement]:
    for line in lines:
        requirement = Requirement(line)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield requirement


def main() -> None:
    """Write all three files."""
    installed = environment(ROOT / ".venv")
    for image, extras in EXTRAS.items():
        _write(image, closure(required(extras), installed))
    serving = environment(ROOT / ".venv-serving")
    _write("serving-cpu", {name: package.version for name, package in serving.items()})


def _write(image: str, versions: dict[str, str]) -> None:
    lines = [f"{name}=={version}" for name, version in sorted(versions.items()) if name not in _NOT_SHIPPED]
    header = "# The versions of this image's packages. Written by docker/pin_requirements.py.\n"
    (FOLDER / f"requirements-{image}.txt").write_text(header + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
