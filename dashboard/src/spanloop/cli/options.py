"""Options and arguments that several commands share."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spanloop.semconv.environment import DATA_DIR_ENV

if TYPE_CHECKING:
    from spanloop.datadir import DataDir

DataDirOption = Annotated[
    Path | None,
    typer.Option(
        "--data-dir", envvar=DATA_DIR_ENV, help="The directory that holds all data.", show_default="~/.spanloop"
    ),
]
CollectorPortOption = Annotated[int, typer.Option(min=1, max=65_535, help="Port of the collector (OTLP/HTTP).")]
GatewayPortOption = Annotated[int, typer.Option(min=1, max=65_535, help="Port of the OpenAI-compatible API.")]
DashboardPortOption = Annotated[int, typer.Option(min=1, max=65_535, help="Port of the dashboard's web pages.")]
ModelArgument = Annotated[str, typer.Argument(help="A model as NAME@VERSION, or NAME for its newest version.")]


def data_directory(path: Path | None) -> "DataDir":
    """Open and check the data directory that the option names."""
    from spanloop.datadir import DataDir

    return DataDir(path).open()
