"""The command itself; each demo is a module of its own."""

import shutil
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from spanloop.semconv.errors import ConfigurationError

from ..checks import require_everything
from ..console import err
from ..options import command, data_directory


def demo(
    tiny: Annotated[
        bool, typer.Option("--tiny", help="The whole loop in about two minutes; claims no learning.")
    ] = False,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            "--data-dir",
            help="Keep the data here.",
            show_default="a scratch directory, removed afterwards unless something failed",
        ),
    ] = None,
) -> None:
    """Run the whole loop here: agent, spans, transitions, training, new weights.

    With --tiny a model of 100,000 parameters is made on the spot. Every part is the real one: vLLM, ClickHouse, verl
    on Ray. What the store holds afterwards is checked; exit code 1 when something is not as it should be.

    Example: `spanloop demo --tiny --data-dir ./demo-data`
    """
    if not tiny:
        raise ConfigurationError("Only the tiny demo exists so far.", next_step="spanloop demo --tiny")
    from spanloop.store import DataDir

    from .tiny import run_tiny

    require_everything()
    path = data_dir or Path(tempfile.mkdtemp(prefix="spanloop-demo-"))
    is_kept = True
    try:
        ok = run_tiny(data_directory(path))
        is_kept = data_dir is not None or not ok
    except KeyboardInterrupt:
        is_kept = data_dir is not None
        raise
    finally:
        if is_kept:
            err.print(f"look at it with: {command('up', DataDir(path))}", markup=False)
        else:
            shutil.rmtree(path, ignore_errors=True)
    if not ok:
        raise typer.Exit(1)
