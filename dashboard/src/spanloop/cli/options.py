"""Options that several commands share."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spanloop.semconv.environment import DATA_DIR_ENV, default_data_dir

if TYPE_CHECKING:
    from spanloop.datadir import DataDir

DataDirOption = Annotated[
    Path | None,
    typer.Option(
        "--data-dir", envvar=DATA_DIR_ENV, help="Where spanloop keeps everything.", show_default="~/.spanloop"
    ),
]
CollectorPortOption = Annotated[int, typer.Option(min=1, max=65_535, help="OTLP/HTTP; apps look here first.")]
GatewayPortOption = Annotated[int, typer.Option(min=1, max=65_535, help="OpenAI-compatible API.")]
DashboardPortOption = Annotated[int, typer.Option(min=1, max=65_535, help="The web pages.")]
ModelArgument = Annotated[str, typer.Argument(help="NAME@VERSION, or NAME for its newest version.")]


def command(arguments: str, directory: "DataDir") -> str:
    """The ``spanloop`` command line that works on the same data directory as the one that runs."""
    where = "" if directory.path == default_data_dir() else f" --data-dir {shlex.quote(str(directory.path))}"
    return f"spanloop {arguments}{where}"


def data_directory(path: Path | None) -> "DataDir":
    """The data directory that the option names, opened and checked."""
    from spanloop.datadir import DataDir

    return DataDir(path).open()
