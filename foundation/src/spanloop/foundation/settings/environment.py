"""Variables of the environment that set the keys of a section.

Invariant: no message contains the value of a secret. The variable of a secret may be ``NAME_FILE``, which names a file.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar, cast, get_args

from pydantic import SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsError

from spanloop.foundation.errors import ConfigurationError
from spanloop.semconv.environment import read_setting

from .section import Section, VariableSection

AnySection = TypeVar("AnySection", bound=Section)
AnyVariableSection = TypeVar("AnyVariableSection", bound=VariableSection)


def variables_set(section: type[VariableSection]) -> dict[str, Any]:
    """Return the values of a section's variables, by field; an empty variable counts as unset.

    Raises:
        ConfigurationError: The variable of a list or table is no JSON.
    """
    source = _Environment(settings_class(section), env_prefix=section.variable_prefix(), env_ignore_empty=True)
    try:
        return source()
    except SettingsError as error:
        raise ConfigurationError(
            f"{section.variable_prefix()}*: {error}.", next_step="Write a list or a table as JSON."
        ) from None


def with_variables(section: AnyVariableSection) -> AnyVariableSection:
    """Return a section of ``spanloop.toml`` with the values of the variables, which win over the file.

    Raises:
        ConfigurationError: A value is invalid; the message names its variable.
    """
    variables = variables_set(type(section))
    if not variables:
        return section
    values = {name: getattr(section, name) for name in section.model_fields_set} | variables
    origins = {name: section.variable(name) for name in variables}
    return validated(type(section), values, origins, next_step="See docs/reference/settings.md.")


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
    place = ".".join(map(str, problem["loc"]))
    value = "" if _is_secret(section.model_fields[name]) else f", got {problem['input']!r}"
    return f"{origins.get(place) or origins.get(name, place)}: {message}{value}"


def _is_secret(field: FieldInfo) -> bool:
    return SecretStr in {field.annotation, *get_args(field.annotation)}


class _Environment(EnvSettingsSource):
    """Variables of the environment; that of a secret may name a file instead."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        if _is_secret(field):
            return read_setting(f"{self.env_prefix}{field_name}".upper()) or None, field_name, False
        return super().get_field_value(field, field_name)


@cache
def settings_class(*classes: type[Section]) -> type[BaseSettings]:
    """Return a class with the fields of others, of the kind whose fields pydantic-settings reads."""
    namespace = {
        "__doc__": str(classes[0].__doc__).replace("``", ""),
        # The fields have their docstrings already. pydantic would look for this class's source in every frame.
        "model_config": {"use_attribute_docstrings": False},
    }
    return cast("type[BaseSettings]", type(classes[0].__name__, (BaseSettings, *classes), namespace))
