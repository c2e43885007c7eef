"""Options that several commands share."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spanloop.semconv.environment import DATA_DIR_ENV

if TYPE_CHECKING:
    from spanloop.store import DataDir

DataDirOption = Annotated[
    Path | None,
    typer.Option(
        "--data-dir", envvar=DATA_DIR_ENV, help="Where spanloop keeps everything.", show_default="~/.spanloop"
    ),
]
CollectorPortOption = Annotated[int, typer.Option(help="OTLP/HTTP; apps look here first.")]
GatewayPortOption = Annotated[int, typer.Option(help="OpenAI-compatible API.")]
DashboardPortOption = Annotated[int, typer.Option(help="The web pages.")]
ModelArgument = Annotated[str, typer.Argument(help="NAME@VERSION, or NAME for its newest version.")]


def data_directory(path: Path | None) -> "DataDir":
    """The data directory that the option names, opened and checked."""
    from spanloop.store import DataDir

    return DataDir(path).open()
