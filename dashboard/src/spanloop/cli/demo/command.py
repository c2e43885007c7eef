"""The command itself; each demo is a module of its own."""

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from spanloop.semconv.errors import ConfigurationError

from ..console import err
from ..options import data_directory


def demo(
    tiny: Annotated[
        bool, typer.Option("--tiny", help="The whole loop in about two minutes; claims no learning.")
    ] = False,
    data_dir: Annotated[
        Path | None,
        typer.Option("--data-dir", help="Keep the data here.", show_default="a scratch directory, removed afterwards"),
    ] = None,
) -> None:
    """Run the whole loop here: agent, spans, transitions, training, new weights.

    With --tiny a model of 100,000 parameters is made on the spot. Every part is the real one: vLLM, ClickHouse, verl
    on Ray. What the store holds afterwards is checked; exit code 1 when something is not as it should be.
    """
    if not tiny:
        raise ConfigurationError("Only the tiny demo exists so far.", next_step="spanloop demo --tiny")
    from .tiny import run_tiny

    if data_dir is not None:
        ok = run_tiny(data_directory(data_dir))
        err.print(f"look at it with: spanloop up --data-dir {data_dir}")
    else:
        with tempfile.TemporaryDirectory(prefix="spanloop-demo-") as scratch:
            ok = run_tiny(data_directory(Path(scratch)))
    if not ok:
        raise typer.Exit(1)
