"""Options of a reader or grader: text from the command line, checked against the fields of its class."""

from collections.abc import Mapping
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from spanloop.foundation.errors import ConfigurationError

M = TypeVar("M", bound=BaseModel)


def with_options(kind: type[M], options: Mapping[str, str], what: str) -> M:
    """Return an object of ``kind`` with the options.

    Args:
        kind: Its fields are the options.
        options: Name → text.
        what: What it is called in errors, such as "grader 'exact'".

    Raises:
        ConfigurationError: An option is unknown, missing or invalid.
    """
    try:
        return kind.model_validate(dict(options))
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, found['loc']))}: {found['msg']}" for found in error.errors())
        raise ConfigurationError(
            f"Options of {what}: {problems}.", next_step=f"Its options are: {', '.join(kind.model_fields) or 'none'}."
        ) from error
