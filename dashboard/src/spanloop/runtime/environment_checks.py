"""The checks of ``spanloop doctor``: each looks at one thing and knows the command that mends it."""

import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from spanloop.semconv.environment import default_data_dir
from spanloop.semconv.errors import ConfigurationError, SpanloopError

from . import serving_environment
from .services import Ports, check_ports, services

_EXTRAS: Final = {
    "server": ("chdb-core", "clickhouse-connect", "polars", "starlette", "uvicorn", "sqlalchemy"),
    "dashboard": ("streamlit",),
    "train": ("torch", "verl", "ray", "transformers", "openai"),
}
_DISK_BYTES: Final = 2 * 2**30
_MEMORY_BYTES: Final = 8 * 2**30


@dataclass(frozen=True, slots=True)
class Check:
    """One look at this machine."""

    name: str
    ok: bool
    found: str
    mend: str = ""
    """The exact command, or what to do."""
    needed: bool = True
    """False for what spanloop can do without."""
    repair: Callable[[Callable[[str, str], None]], None] | None = None
    """What ``--fix`` runs; it takes a function that receives a title and a line of progress."""


def all_checks(data_dir: Path | None) -> list[Check]:
    """Every check, in the order in which they matter."""
    directory = data_dir or default_data_dir()
    return [
        *(_extra(name, packages) for name, packages in _EXTRAS.items()),
        _serving(),
        _device(),
        _memory(),
        _directory(directory),
        _disk(directory),
        _up(directory),
    ]


def require_everything() -> None:
    """Refuse when something that the whole loop runs on is not installed.

    Raises:
        ConfigurationError: Names what is missing and the command that brings it.
    """
    for check in (*(_extra(name, _EXTRAS[name]) for name in ("server", "train")), _serving()):
        if not check.ok:
            raise ConfigurationError(f"The {check.name}: {check.found}", next_step=check.mend)


def _extra(name: str, packages: tuple[str, ...]) -> Check:
    found: list[str] = []
    missing: list[str] = []
    for package in packages:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            missing.append(package)
    mend = f"{sys.executable} -m pip install 'spanloop[{name}]'"
    text = ", ".join(found) if not missing else f"missing {', '.join(missing)}"
    return Check(f"extra {name}", not missing, text, mend, needed=name == "server")


def _serving() -> Check:
    from spanloop.gateway.serving_environment import find_serving_environment, serving_environment_path

    name = "serving environment"
    try:
        found = find_serving_environment()
    except SpanloopError as error:
        return Check(
            name,
            False,
            error.what,
            "spanloop doctor --fix",
            repair=partial(serving_environment.create, serving_environment_path()),
        )
    return Check(name, True, f"{found.package} {found.version} in {found.path}")


def _device() -> Check:
    driver = shutil.which("nvidia-smi")
    return Check("device", ok=True, found="NVIDIA GPU" if driver else f"CPU, {os.cpu_count()} cores")


def _memory() -> Check:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    found = f"{total / 2**30:.0f} GiB"
    return Check("memory", total >= _MEMORY_BYTES, found, "8 GiB let a small model train on the CPU", needed=False)


def _directory(path: Path) -> Check:
    from spanloop.datadir import DataDir

    if not path.exists():
        return Check("data directory", ok=True, found=f"{path} (made by the first spanloop up)")
    try:
        DataDir(path).open()
    except SpanloopError as error:
        return Check("data directory", ok=False, found=error.what, mend=error.next_step)
    return Check("data directory", ok=True, found=str(path))


def _disk(path: Path) -> Check:
    existing = next(each for each in (path, *path.parents) if each.exists())
    free = shutil.disk_usage(existing).free
    return Check(
        "disk", free >= _DISK_BYTES, f"{free / 2**30:.1f} GiB free", "free some space, or give --data-dir another disk"
    )


def _up(path: Path) -> Check:
    from spanloop.datadir import DataDir

    if (running := DataDir(path).running("collector")) is not None:
        return Check("spanloop", ok=True, found=f"up, collector on {running.url}")
    try:
        check_ports(services(Ports()))
    except SpanloopError as error:
        return Check("ports", ok=False, found=error.what, mend=error.next_step, needed=False)
    return Check("spanloop", ok=True, found="not running; the default ports are free; start it with: spanloop up")
