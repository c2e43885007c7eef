"""The ``spanloop`` command. Each part is imported only when its subcommand runs."""

import sys

_EXTRAS = {
    "typer": "server",
    "rich": "server",
    "pydantic": "server",
    "polars": "server",
    "clickhouse_connect": "server",
}


def main() -> None:
    """Entry point of the ``spanloop`` script; exits with the command's code."""
    try:
        from .app import run
    except ModuleNotFoundError as error:
        if error.name not in _EXTRAS:
            raise
        sys.exit(
            f"spanloop: the command line needs {error.name!r}, which the core install leaves out.\n"
            f"  next: {sys.executable} -m pip install 'spanloop[{_EXTRAS[error.name]}]'"
        )
    run()
