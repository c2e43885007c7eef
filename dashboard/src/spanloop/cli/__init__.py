"""The ``spanloop`` command. A package that a subcommand needs is imported only when that subcommand runs."""

import sys
from typing import Final

_MODULES: Final = {
    "server": (
        "chdb",
        "clickhouse_connect",
        "croniter",
        "httpx",
        "ml_dtypes",
        "polars",
        "psutil",
        "pyarrow",
        "pydantic",
        "pydantic_settings",
        "rich",
        "safetensors",
        "sqlalchemy",
        "starlette",
        "typer",
        "uvicorn",
    ),
    "dashboard": ("streamlit",),
    "train": ("openai", "peft", "ray", "tensordict", "tokenizers", "torch", "transformers", "verl"),
}
_EXTRAS: Final = {module: extra for extra, modules in _MODULES.items() for module in modules}


def main() -> None:
    """Run the ``spanloop`` script; exit with the command's code."""
    try:
        from .app import run

        run()
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _EXTRAS:
            raise
        if sys.argv[1:] in (["instrument"], ["instrument", "--install"], ["doctor", "--app"]):
            sys.exit(_instrument(installs="--install" in sys.argv))
        print(_advice(missing), file=sys.stderr)  # noqa: T201 - rich may be what is missing
        sys.exit(2)


def _advice(missing: str) -> str:
    """Say what the command needs; an app's environment needs the core package only."""
    extra = _EXTRAS[missing]
    install = f"{sys.executable} -m pip install '/path/to/spanloop[{extra}]'"
    if extra == "server":
        return (
            f"error: This command needs {missing!r}, which is not installed here. In an app's environment, only "
            "`spanloop instrument` and `spanloop doctor --app` are of use.\n"
            f"  next: run the command where spanloop's server is installed, or install that here: {install}"
        )
    return f"error: This command needs {missing!r}, which is not installed here.\n  next: {install}"


def _instrument(*, installs: bool) -> int:
    """Run `spanloop instrument` or `spanloop doctor --app` in an app's environment, which has the core package only."""
    from spanloop.foundation.errors import SpanloopError
    from spanloop.instrumentation.loading.environment_advice import run

    try:
        run(installs=installs)
    except SpanloopError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        return error.exit_code
    return 0
