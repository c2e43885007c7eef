"""Objects of a user's own: built in, an installed package's entry point, or ``module:name`` of an importable module."""

import importlib
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import cast

from spanloop.foundation.errors import ConfigurationError


def find_extension(target: str, *, group: str, what: str, built_in: Mapping[str, object]) -> object:
    """The object that ``target`` names.

    Args:
        target: A name, or ``module:name``.
        group: The entry point group that packages offer such objects in.
        what: What it is called in errors, such as "reward function".
        built_in: Name → object; these come first.

    Raises:
        ConfigurationError: Nothing is called so, or it cannot be imported.
    """
    if target in built_in:
        return built_in[target]
    if ":" in target:
        return _imported(target, what)
    offered = {point.name: point for point in entry_points(group=group)}
    if target not in offered:
        raise ConfigurationError(
            f"No {what} is called {target!r}.",
            next_step=f"Known: {', '.join(sorted({*built_in, *offered})) or 'none'}; or give module:name.",
        )
    try:
        return cast("object", offered[target].load())
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(
            f"Entry point {target!r} of group {group} cannot be loaded: {error}.",
            next_step="Install what it needs, or update the package that offers it.",
        ) from error


def offered_extensions(*, group: str, what: str) -> list[object]:
    """The objects of all entry points of ``group``, by name.

    Raises:
        ConfigurationError: One cannot be imported.
    """
    offered = sorted({point.name for point in entry_points(group=group)})
    return [find_extension(name, group=group, what=what, built_in={}) for name in offered]


def _imported(target: str, what: str) -> object:
    module_name, _, path = target.partition(":")
    try:
        found: object = importlib.import_module(module_name)
        for name in path.split("."):
            found = getattr(found, name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(
            f"{what.capitalize()} {target!r} cannot be imported: {error}.",
            next_step="Name it as module:name, from a module on the Python path.",
        ) from error
    return found
