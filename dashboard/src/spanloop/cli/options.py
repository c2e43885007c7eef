"""Options that several commands share."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spanloop.semconv.environment import COLLECTOR_PORT, DASHBOARD_PORT, DATA_DIR_ENV, GATEWAY_PORT

if TYPE_CHECKING:
    from spanloop.store import DataDir

DataDirOption = Annotated[
    Path | None,
    typer.Option(
        "--data-dir", envvar=DATA_DIR_ENV, help="Where spanloop keeps everything.", show_default="~/.spanloop"
    ),
]
CollectorPortOption = Annotated[
    int, typer.Option(help="OTLP/HTTP; apps look here first.", show_default=str(COLLECTOR_PORT))
]
GatewayPortOption = Annotated[int, typer.Option(help="OpenAI-compatible API.", show_default=str(GATEWAY_PORT))]
DashboardPortOption = Annotated[int, typer.Option(help="The web pages.", show_default=str(DASHBOARD_PORT))]
ModelArgument = Annotated[str, typer.Argument(help="NAME@VERSION, or NAME for its newest version.")]


def data_directory(path: Path | None) -> "DataDir":
    """The data directory that the option names, opened and checked."""
    from spanloop.store import DataDir

    return DataDir(path).open()
