"""Import an object by name: a built-in, an installed package's entry point, or ``module:name``.

Invariant: a name is never ambiguous. Built-ins come first; a name that two packages offer is an error.
"""

import importlib
from collections.abc import Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import cast

from spanloop.foundation.errors import ConfigurationError


def find_extension(target: str, *, group: str, what: str, built_in: Mapping[str, str]) -> object:
    """Return the object that ``target`` names.

    Args:
        target: A name, or ``module:name``.
        group: The entry point group that packages offer such objects in.
        what: What it is called in errors, such as "reward function".
        built_in: Name → ``module:name``; these come first, and are imported only here.

    Raises:
        ConfigurationError: Nothing is called so, two packages use the name, or it cannot be imported.
    """
    if target in built_in:
        return import_object(built_in[target])
    if ":" in target:
        try:
            return import_object(target)
        except Exception as error:  # the border to a user's module
            raise ConfigurationError(
                f"{what.capitalize()} {target!r} cannot be imported: {_cause(error)}.",
                next_step="Name it as module:name, from a module on the Python path.",
            ) from error
    points = [point for point in entry_points(group=group) if point.name == target]
    if not points:
        known = sorted({*built_in, *entry_points(group=group).names})
        raise ConfigurationError(
            f"No {what} is called {target!r}.",
            next_step=f"Known: {', '.join(known) or 'none'}; or install the package that offers it, or give "
            "module:name.",
        )
    if len(points) > 1:
        raise ConfigurationError(
            f"Several packages offer a {what} {target!r}: {', '.join(map(package_of, points))}.",
            next_step="Uninstall all but one, or give module:name.",
        )
    return load_entry_point(points[0])


def offered_extensions(*, group: str, what: str) -> list[object]:
    """Return the objects of all entry points of ``group``, by name.

    Raises:
        ConfigurationError: One cannot be imported.
    """
    offered = sorted({point.name for point in entry_points(group=group)})
    return [find_extension(name, group=group, what=what, built_in={}) for name in offered]


def offered_points(group: str) -> Iterator[EntryPoint]:
    """Yield the entry points of ``group``, by name and package; nothing is imported."""
    yield from sorted(entry_points(group=group), key=lambda point: (point.name, package_of(point)))


def load_entry_point(point: EntryPoint) -> object:
    """Import the object of an entry point.

    Raises:
        ConfigurationError: It cannot be imported.
    """
    try:
        return cast("object", point.load())
    except Exception as error:  # the border to another package
        raise ConfigurationError(
            f"Entry point {point.name!r} of group {point.group} in {package_of(point)} cannot be loaded: "
            f"{_cause(error)}.",
            next_step="Install what it needs, or update the package that offers it.",
        ) from error


def package_of(point: EntryPoint) -> str:
    """Return name and version of the package that offers an entry point."""
    return f"{point.dist.name} {point.dist.version}" if point.dist is not None else point.module


def _cause(error: Exception) -> str:
    text = " ".join(str(error).split()).rstrip(".")
    return text if isinstance(error, ImportError | AttributeError | ValueError) else f"{type(error).__name__}: {text}"


def import_object(target: str) -> object:
    """Return the object that ``module:name`` names; whatever importing it raises is raised."""
    module_name, _, path = target.partition(":")
    found: object = importlib.import_module(module_name)
    for name in path.split("."):
        found = getattr(found, name)
    return found
