"""Read conversion settings from the environment, so that every process uses the same."""

import os
from collections.abc import Mapping
from typing import Final

from spanloop.converters import Options
from spanloop.converters.rewards import reward_functions
from spanloop.semconv.environment import CONVERT_MEMORY_ENV, REWARDS_ENV
from spanloop.semconv.errors import ConfigurationError

MEMORY_MIB: Final = 2_048


def options_from_environment(environment: Mapping[str, str] = os.environ) -> Options:
    """Return the conversion options of the environment.

    Raises:
        ConfigurationError: A reward function is unknown.
    """
    references = [reference for reference in environment.get(REWARDS_ENV, "").split(",") if reference.strip()]
    return Options(reward_functions=reward_functions(references))


def memory_bytes(environment: Mapping[str, str] = os.environ) -> int:
    """Return the memory limit of a conversion, in bytes.

    Raises:
        ConfigurationError: The variable is not a number.
    """
    mebibytes = environment.get(CONVERT_MEMORY_ENV, "") or str(MEMORY_MIB)
    if not mebibytes.isdecimal() or int(mebibytes) < 1:
        raise ConfigurationError(
            f"{CONVERT_MEMORY_ENV} is {mebibytes!r}, expected a number of MiB.",
            next_step=f"Set it to {MEMORY_MIB}, or unset it.",
        )
    return int(mebibytes) << 20
