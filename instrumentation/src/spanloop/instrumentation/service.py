"""Default service name: the app's script instead of ``unknown_service``."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Final

_OPTIONS_WITH_VALUE: Final = frozenset({"-W", "-X", "--check-hash-based-pycs"})
_FALLBACK: Final = "python"
_MULTIPROCESSING: Final = "from multiprocessing."


def default_service_name(command: Sequence[str] | None = None) -> str:
    """Return the script's or module's name in ``command`` (default: this interpreter's command line).

    ``python app/agent.py`` is ``agent``, ``python -m pkg.tool`` is ``pkg.tool``, a folder or its ``__main__.py``
    is the folder's name, a ``multiprocessing`` child has its parent's name, and ``-c`` and standard input are
    ``python``.
    """
    arguments = iter((sys.orig_argv if command is None else command)[1:])
    for argument in arguments:
        if argument == "-m":
            return next(arguments, "") or _FALLBACK
        if argument.startswith("-m"):
            return argument[2:]
        if argument.startswith("-c"):
            code = argument[2:] or next(arguments, "")
            return default_service_name(_command_of_parent()) if _MULTIPROCESSING in code else _FALLBACK
        if argument == "-":
            return _FALLBACK
        if argument in _OPTIONS_WITH_VALUE:
            next(arguments, "")
        elif not argument.startswith("-"):
            return _name_of_script(argument)
    return _FALLBACK


def names_service_itself(environment: Mapping[str, str]) -> bool:
    """Whether the user's OpenTelemetry variables give a service name."""
    if environment.get("OTEL_SERVICE_NAME", "").strip():
        return True
    pairs = environment.get("OTEL_RESOURCE_ATTRIBUTES", "").split(",")
    return any(pair.partition("=")[0].strip() == "service.name" for pair in pairs)


def _command_of_parent() -> list[str]:
    try:
        command = Path(f"/proc/{os.getppid()}/cmdline").read_bytes()
    except OSError:  # no such file system here, or the parent is gone: the name is unknown
        return []
    return [argument.decode(errors="replace") for argument in command.split(b"\0")[:-1]]


def _name_of_script(script: str) -> str:
    path = PurePath(os.path.abspath(script))  # noqa: PTH100  a pure path, whatever the file system says
    name = path.parent.name if path.stem == "__main__" else path.name.removesuffix(".py").removesuffix(".pyz")
    return name or _FALLBACK
