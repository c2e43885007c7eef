"""Options and arguments that several commands share."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from spanloop.semconv.environment import CONFIG_ENV, DATA_DIR_ENV, LOG_FORMAT_ENV, find_configuration

if TYPE_CHECKING:
    from spanloop.foundation.paths import DataDir

DataDirOption = Annotated[
    Path | None,
    typer.Option(
        "--data-dir", envvar=DATA_DIR_ENV, help="The directory that holds all data.", show_default="~/.spanloop"
    ),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", envvar=CONFIG_ENV, help="Configuration file.", show_default="spanloop.toml, if it exists"),
]
LogFormatOption = Annotated[
    Literal["text", "json"] | None,
    typer.Option(
        "--log-format",
        envvar=LOG_FORMAT_ENV,
        help="Format of the logs; json: one object a line, with trace ids.",
        show_default="`[logging] format`, else text",
    ),
]
ModelArgument = Annotated[
    str, typer.Argument(help="A model as NAME@VERSION or NAME@ALIAS, or NAME for its newest version.")
]


def exact_version(directory: "DataDir", model: str) -> str:
    """Return the ``name@version`` that a reference means now; what is not registered stays as it is."""
    from spanloop.foundation.version_names import is_exact
    from spanloop.training.models.registry import Registry

    version = None if is_exact(model) else Registry(directory).find(model)
    return model if version is None else version.reference


def use_log_format(log_format: str | None) -> None:
    """Let the roles that this process starts log in a format; None leaves it to the environment and the file."""
    if log_format is not None:
        os.environ[LOG_FORMAT_ENV] = log_format


def data_directory(path: Path | None, config: Path | None = None) -> "DataDir":
    """Read the configuration, then open and check the data directory that the option names."""
    return configured_directory(path, config).open()


def configured_directory(path: Path | None, config: Path | None = None) -> "DataDir":
    """Return the data directory that the option names, without access to it, after `use_configuration`."""
    from spanloop.foundation.paths import DataDir

    directory = DataDir(path)
    use_configuration(directory.path, config)
    return directory


def use_configuration(data_dir: Path, file: Path | None = None) -> None:
    """Let this process, and all that it starts, use the addresses, keys and folders that the configuration names.

    Raises:
        ConfigurationError: The file is invalid; nothing has started yet.
    """
    if (file or find_configuration(data_dir)) is not None:
        from spanloop.foundation.settings import use_settings  # takes 0.1 s

        use_settings(data_dir, file)
    if file is not None:
        os.environ[CONFIG_ENV] = str(file.absolute())
