"""Read a role's settings: command line, then environment, then ``spanloop.toml``, then the defaults of its class.

Invariant: this is the only place that decides which source wins. A ``.env`` file is not read; `environment` reads the
variables.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Generic, NamedTuple, TypeVar

from pydantic_settings import CliSettingsSource

from spanloop.semconv.environment import CONFIG_ENV, default_data_dir

from . import Configuration, load_configuration
from .environment import settings_class, validated, variables_set
from .roles import ProcessOptions, RoleSettings

FILE_ORIGIN: Final = "spanloop.toml"
NONE_TEXT: Final = "none"
"""The text of an option that sets a setting to None."""

AnyRole = TypeVar("AnyRole", bound=RoleSettings)


class Resolved(NamedTuple, Generic[AnyRole]):
    """The settings of a role."""

    settings: AnyRole
    origins: Mapping[str, str]
    """For each setting that is not a default, what sets it: an option, a variable or ``spanloop.toml``."""


class Process(NamedTuple, Generic[AnyRole]):
    """Everything that configures a role's process."""

    data_dir: Path
    log_format: str | None
    configuration: Configuration
    settings: AnyRole


def read_process(role: type[AnyRole], arguments: Sequence[str] | None = None) -> Process[AnyRole]:
    """Read the command line of a role's process, its environment and ``spanloop.toml``.

    The file of ``--config`` is the one that the rest of the process reads.

    Args:
        role: Its class.
        arguments: The command line; None is that of this process.

    Raises:
        ConfigurationError: A value or the file is invalid; the message names the option, variable or key.
        SystemExit: The command line is ``--help``, or has an unknown option.
    """
    given = _parse(role, arguments)
    process = {name: given.pop(name) for name in ProcessOptions.model_fields if name in given}
    options = ProcessOptions.model_validate(process)
    data_dir = options.data_dir or default_data_dir()
    if options.config is not None:
        os.environ[CONFIG_ENV] = str(options.config.absolute())
    configuration = load_configuration(data_dir)
    settings = resolve(role, configuration, given).settings
    return Process(data_dir, options.log_format, configuration, settings)


def resolve(
    role: type[AnyRole], configuration: Configuration, given: Mapping[str, Any] = MappingProxyType({})
) -> Resolved[AnyRole]:
    """Return the settings of a role and what set each.

    Args:
        role: Its class.
        configuration: Its section is ``[serve.ROLE]``.
        given: The options of the command line, by field.

    Raises:
        ConfigurationError: A value is invalid; the message names its option, variable or key.
    """
    section: RoleSettings = getattr(configuration.serve, role.role)
    sources: tuple[tuple[Mapping[str, Any], Callable[[str], str]], ...] = (
        (given, role.option),
        (variables_set(role), role.variable),
        ({name: getattr(section, name) for name in section.model_fields_set}, lambda _: FILE_ORIGIN),
    )
    values, origins = dict[str, Any](), dict[str, str]()
    for source, origin in reversed(sources):
        values |= source
        origins |= {name: origin(name) for name in source}
    return Resolved(validated(role, values, origins, next_step=f"See spanloop serve {role.role} --help."), origins)


def _parse(role: type[RoleSettings], arguments: Sequence[str] | None) -> dict[str, Any]:
    """Return the values on the command line by field; the classes check them later."""
    source = CliSettingsSource[Any](
        settings_class(role, ProcessOptions),
        cli_prog_name=f"python -m {role.module}",
        cli_parse_args=True if arguments is None else list(arguments),
        cli_parse_none_str=NONE_TEXT,
        cli_kebab_case=True,
        cli_implicit_flags="toggle",
        cli_hide_none_type=True,
    )
    return dict(source())
