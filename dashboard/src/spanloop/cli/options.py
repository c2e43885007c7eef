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
ModelArgument = Annotated[
    str, typer.Argument(help="A model as NAME@VERSION or NAME@ALIAS, or NAME for its newest version.")
]


def exact_version(directory: "DataDir", model: str) -> str:
    """Return the ``name@version`` that a reference means now; what is not registered stays as it is."""
    from spanloop.training.registry import Registry
    from spanloop.training.version_names import is_exact

    version = None if is_exact(model) else Registry(directory).find(model)
    return model if version is None else version.reference


def data_directory(path: Path | None) -> "DataDir":
    """Open and check the data directory that the option names."""
    from spanloop.datadir import DataDir

    return DataDir(path).open()
