# pyright: basic
"""Compare a job's raw overrides and loggers with the installed verl, before the job trains.

Invariant: neither verl nor torch is imported (:mod:`.verl_schema`).
"""

import difflib
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, Final

from spanloop.foundation.errors import ConfigurationError
from spanloop.training.recipes.base import LearnsFrom
from spanloop.training.spec.job_spec import JobSpec
from spanloop.training.spec.stages import stages_of
from spanloop.training.spec.verl_overrides import refused_overrides

from .verl_schema import DeclaredKey, UnknownKey, default_config, find_key, leaf_keys

_NEAREST: Final = 3
_QUOTE: Final = "Write numbers and true or false without quotes, lists as [1,2], and texts in single quotes."
_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "bool": (bool,),
    "int": (int,),
    "float": (int, float),
    "str": (str,),
    "list": (list,),
    "tuple": (list,),
    "dict": (dict,),
}
"""Types of a value by the name of the declared one."""


def check_verl(spec: JobSpec) -> None:
    """Check the overrides and loggers of each stage; nothing is checked where verl is not installed.

    Raises:
        ConfigurationError: A key is unknown to verl, a value has another type than verl's, or a logger's package is
            not installed.
    """
    if find_spec("verl") is None:
        return
    for stage in stages_of(spec):
        check_loggers(stage.spec)
        check_overrides(stage.spec.recipe.learns_from, stage.spec.run.verl)


def check_loggers(spec: JobSpec) -> None:
    """Check that the package of each logger is installed.

    Raises:
        ConfigurationError: One is not.
    """
    for logger in spec.run.loggers:
        if find_spec(logger.value) is None:
            raise ConfigurationError(
                f"loggers: {logger} needs the package {logger}, which is not installed beside verl.",
                next_step=f"Install it on the host that trains: python -m pip install {logger}",
            )


def check_overrides(data: LearnsFrom, overrides: tuple[str, ...]) -> None:
    """Compare overrides with verl's configuration for recipes that learn from ``data``.

    Raises:
        ConfigurationError: A key is unknown, a value cannot be read or has another type.
    """
    for text in overrides:
        problem = _problem(data, text)
        if problem:
            what, next_step = problem
            raise ConfigurationError(f"verl: {what}", next_step=next_step)


def config_name(data: LearnsFrom) -> str:
    """Return the name of verl's configuration for recipes that learn from ``data``."""
    return "ppo_trainer" if data is LearnsFrom.ROWS else "sft_trainer_engine"


def _problem(data: LearnsFrom, text: str) -> tuple[str, str] | None:
    """Return what is wrong with an override, and the next step."""
    key, _, written = text.partition("=")
    try:
        value = _value(text)
    except ValueError as error:
        return f"the value of {key} is no value in Hydra's syntax: {written!r} ({error}).", _QUOTE
    declared = find_key(default_config(config_name(data)), key)
    if isinstance(declared, UnknownKey):
        return _unknown(data, key, declared.parent)
    is_interpolated = isinstance(value, str) and "${" in value
    return None if declared is None or is_interpolated else _wrong_type(key, value, declared)


def _wrong_type(key: str, value: Any, declared: DeclaredKey) -> tuple[str, str] | None:
    if isinstance(declared.default, dict) and declared.default:
        below = ", ".join(list(leaf_keys(declared.default, f"{key}."))[:_NEAREST])
        return f"{key} is a table of verl's configuration.", f"Override single keys below it, such as {below}"
    accepted = _TYPES.get(declared.type_name) or _TYPES.get(type(declared.default).__name__)
    is_number_as_bool = isinstance(value, bool) and declared.type_name in {"int", "float"}
    is_none = value is None and declared.is_optional
    if accepted is None or is_none or (isinstance(value, accepted) and not is_number_as_bool):
        return None
    expected = f"verl expects {accepted[-1].__name__}, as in its default {declared.default!r}"
    return f"{key} is {value!r} ({type(value).__name__}); {expected}.", _QUOTE


def _value(text: str) -> Any:
    """Return the value of an override.

    Raises:
        ValueError: It is not in Hydra's syntax, or is several values.
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser  # noqa: PLC0415 - installed with verl
    from hydra.errors import HydraException  # noqa: PLC0415

    try:
        override = OverridesParser.create().parse_override(f"++{text}")
    except HydraException as error:
        raise ValueError(str(error).splitlines()[0]) from error
    if override.is_sweep_override():
        raise ValueError("several values")
    return override.value()


def _unknown(data: LearnsFrom, key: str, parent: str) -> tuple[str, str]:
    keys = [each for each in leaf_keys(default_config(config_name(data))) if not any(refused_overrides((f"{each}=",)))]
    last = key.rpartition(".")[2]
    same_name = [each for each in keys if each.rpartition(".")[2] == last]
    near = [*same_name, *difflib.get_close_matches(key, keys, n=_NEAREST, cutoff=0.6)]
    nearest = list(dict.fromkeys(near))[:_NEAREST]
    where = f"; {parent} is the last table of it that exists" if parent else ""
    hint = f"Did you mean {' or '.join(nearest)}? " if nearest else ""
    return (
        f"{key} is no key of verl's {config_name(data)} configuration{where}.",
        f"{hint}The keys are in verl's folder trainer/config.",
    )
