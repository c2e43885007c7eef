"""Say which instrumentors serve an environment best, and install those that are missing.

Standard library and OpenTelemetry only: it runs in the environment of a user's app, where the core package may be all
that is installed of spanloop.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from importlib import invalidate_caches
from importlib.metadata import PackageNotFoundError, entry_points, version
from importlib.util import find_spec
from typing import Final

from spanloop.instrumentation.calls.http_clients import CLIENTS
from spanloop.instrumentation.loading.instrumentor_choice import GROUP, Choice, choose, environment_choices
from spanloop.instrumentation.loading.libraries import Native
from spanloop.semconv.errors import ConfigurationError

INSTALL_COMMAND: Final = "spanloop instrument --install"
PLAIN_HTTP: Final = (
    f"plain HTTP ({', '.join(CLIENTS)}): model calls that none of these libraries makes are not traced; the app names "
    "their hosts on stderr"
)


def missing_packages(choices: Iterable[Choice]) -> list[str]:
    """Return the packages that would trace the libraries that nothing traces."""
    return [choice.library.candidates[0].package for choice in choices if _is_missing(choice)]


def _is_missing(choice: Choice) -> bool:
    """A misfit is not installed again, and what the user switched off stays off."""
    is_traced = bool(choice.fitting) or (choice.is_native and choice.library.native is not Native.TOOLS)
    return not is_traced and not choice.skipped and bool(choice.library.candidates)


def advice(choices: Sequence[Choice]) -> list[str]:
    """Return lines about each installed library, and one about plain HTTP.

    They say what traces a library, what stays off and why, and what to install.
    """
    if not choices:
        return ["no model SDK or agent framework that spanloop knows is installed here", PLAIN_HTTP]
    lines: list[str] = []
    for choice in choices:
        lines.append(f"{_title(choice)}: {' + '.join(choice.by) or 'nothing traces it'}")
        lines += [f"    stays off: {skip.package} ({skip.reason})" for skip in choice.skipped]
    if packages := missing_packages(choices):
        lines.append(f"missing: {', '.join(packages)} (install them: {INSTALL_COMMAND})")
    return [*lines, PLAIN_HTTP]


def _title(choice: Choice) -> str:
    for name in choice.library.distributions:
        try:
            return f"{name} {version(name)}"
        except PackageNotFoundError:
            continue
    return choice.library.name


def install(packages: Sequence[str]) -> None:
    """Install packages into this environment with pip, or with uv where there is no pip.

    Raises:
        ConfigurationError: There is neither pip nor uv, or the installation failed.
    """
    if find_spec("pip"):
        command = [sys.executable, "-m", "pip", "install", *packages]
    elif uv := shutil.which("uv"):
        command = [uv, "pip", "install", "--python", sys.executable, *packages]
    else:
        raise ConfigurationError(
            f"{', '.join(packages)} cannot be installed: this environment has no pip, and uv is not on the path",
            next_step=f"install them as you install the app's other packages: {' '.join(packages)}",
        )
    code = subprocess.run(command, check=False).returncode
    if code:
        raise ConfigurationError(
            f"installing {', '.join(packages)} failed with exit code {code}", next_step=f"run it: {' '.join(command)}"
        )


def run(*, installs: bool) -> None:
    """Print the advice for this environment; with ``installs``, first install what is missing.

    Raises:
        ConfigurationError: The installation failed.
    """
    choices = environment_choices()
    if installs and (packages := missing_packages(choices)):
        install(packages)
        invalidate_caches()
        choices = choose(entry_points(group=GROUP))
    print("\n".join(advice(choices)))  # noqa: T201  the command's output; rich is not in the core
