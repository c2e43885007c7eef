"""Specifications from the settings that a user gives: a job file, options of the command line."""

import difflib
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from spanloop.foundation.errors import ConfigurationError

from .fields import problems, read_none, spec_fields
from .flat_settings import flattened
from .job_spec import JobSpec


def read_job_file(path: Path) -> dict[str, Any]:
    """Return the settings in a TOML file; their values are not validated yet.

    Raises:
        ConfigurationError: The file cannot be read, is not TOML, or has a key that is no setting.
    """
    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigurationError(
            f"There is no job file {path}.", next_step="Check the path; a model's name does not end with .toml here."
        ) from error
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"The job file {path} cannot be read: {error}.", next_step='Write settings as TOML, as base = "mine".'
        ) from error
    check_names(settings, where=str(path))
    return settings


def check_names(settings: Mapping[str, Any], *, where: str) -> None:
    """Refuse names that are no setting.

    Raises:
        ConfigurationError: It has the nearest name of a setting.
    """
    names = [field.name for field in spec_fields()]
    try:
        given = flattened(settings)
    except ValueError as error:
        raise ConfigurationError(
            f"{where}: {error}.", next_step="spanloop train --help lists the settings of a training job."
        ) from error
    for name in given:
        if name not in names:
            nearest = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
            hint = f"Did you mean {nearest[0]}? " if nearest else ""
            raise ConfigurationError(
                f"{where}: {name} is no setting of a training job.",
                next_step=f"{hint}spanloop train --help lists all of them.",
            )


def build_spec(settings: Mapping[str, Any], *, where: str) -> JobSpec:
    """Return the spec of ``settings``; what they leave out has the kind's default.

    Raises:
        ConfigurationError: Names every invalid setting.
    """
    check_names(settings, where=where)
    try:
        return JobSpec.model_validate(read_none(flattened(settings)))
    except ValidationError as error:
        raise ConfigurationError(
            f"{where}: the job's settings are invalid: {'; '.join(problems(error))}",
            next_step="spanloop train --help explains each of them.",
        ) from error
