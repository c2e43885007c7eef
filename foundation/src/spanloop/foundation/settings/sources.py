"""Read a role's settings: command line, then environment, then ``spanloop.toml``, then the defaults of its class.

Invariant: this is the only place that decides which source wins. A ``.env`` file is not read. A secret may be in a file
that the variable ``NAME_FILE`` names. No message contains the value of a secret.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast, get_args

from pydantic import SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, CliSettingsSource, EnvSettingsSource

from spanloop.foundation.errors import ConfigurationError
from spanloop.semconv.environment import CONFIG_ENV, default_data_dir, read_setting

from . import Configuration, load_configuration
from .roles import ProcessOptions, RoleSettings
from .section import Section

FILE_ORIGIN: Final = "spanloop.toml"
NONE_TEXT: Final = "none"
"""The text of an option that sets a setting to None."""

AnyRole = TypeVar("AnyRole", bound=RoleSettings)
AnySection = TypeVar("AnySection", bound=Section)


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
        (_Environment(_loader(role), env_prefix=role.variable_prefix(), env_ignore_empty=True)(), role.variable),
        ({name: getattr(section, name) for name in section.model_fields_set}, lambda _: FILE_ORIGIN),
    )
    values, origins = dict[str, Any](), dict[str, str]()
    for source, origin in reversed(sources):
        values |= source
        origins |= {name: origin(name) for name in source}
    return Resolved(validated(role, values, origins, next_step=f"See spanloop serve {role.role} --help."), origins)


def validated(
    section: type[AnySection], values: Mapping[str, Any], origins: Mapping[str, str], *, next_step: str
) -> AnySection:
    """Return settings with these values.

    Args:
        section: Their class.
        values: By field.
        origins: What sets each: an option or a variable.
        next_step: Of the error.

    Raises:
        ConfigurationError: A value is invalid; the message names what sets it.
    """
    try:
        return section.model_validate(values)
    except ValidationError as error:
        problems = "; ".join(_problem(section, problem, origins) for problem in error.errors())
        raise ConfigurationError(f"{problems}.", next_step=next_step) from None


def _problem(section: type[Section], problem: Any, origins: Mapping[str, str]) -> str:
    message = str(problem["msg"]).removeprefix("Value error, ")
    if not problem["loc"]:
        return message
    name = str(problem["loc"][0])
    value = "" if _is_secret(section.model_fields[name]) else f", got {problem['input']!r}"
    return f"{origins.get(name, name)}: {message}{value}"


def _is_secret(field: FieldInfo) -> bool:
    return SecretStr in {field.annotation, *get_args(field.annotation)}


class _Environment(EnvSettingsSource):
    """Variables of the environment; that of a secret may name a file instead."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        if _is_secret(field):
            return read_setting(f"{self.env_prefix}{field_name}".upper()) or None, field_name, False
        return super().get_field_value(field, field_name)


def _loader(*classes: type[RoleSettings | ProcessOptions]) -> type[BaseSettings]:
    """Return a class with the fields of others, of the kind whose fields pydantic-settings reads."""
    doc = str(classes[0].__doc__).replace("``", "")
    return cast("type[BaseSettings]", type(classes[0].__name__, (BaseSettings, *classes), {"__doc__": doc}))


def _parse(role: type[RoleSettings], arguments: Sequence[str] | None) -> dict[str, Any]:
    """Return the values on the command line by field; the classes check them later."""
    source = CliSettingsSource[Any](
        _loader(role, ProcessOptions),
        cli_prog_name=f"python -m {role.module}",
        cli_parse_args=True if arguments is None else list(arguments),
        cli_parse_none_str=NONE_TEXT,
        cli_kebab_case=True,
        cli_implicit_flags="toggle",
        cli_hide_none_type=True,
    )
    return dict(source())
