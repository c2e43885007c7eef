"""``spanloop instrument``: which instrumentors trace this environment's libraries, and which are missing."""

from typing import Annotated

import typer


def instrument(
    install: Annotated[bool, typer.Option("--install", help="Install the instrumentors that are missing.")] = False,
) -> None:
    """Show what traces each model SDK and agent framework of this environment, what stays off and why.

    Run it in the environment of your app; `pip install /path/to/spanloop` is enough.

    Example: `spanloop instrument --install`
    """
    from spanloop.instrumentation.loading.environment_advice import run

    run(installs=install)
