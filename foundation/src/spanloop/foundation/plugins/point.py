"""An extension point: the one lookup of a kind, for built-ins, packages and modules of the user's.

Invariant: whatever a name stands for, `ExtensionPoint.find` returns an object of the kind's class, whose options were
checked. What cannot be loaded costs only itself: a listing has a line for it.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Generic, NamedTuple, TypeVar

from pydantic import BaseModel

from spanloop.foundation.errors import ConfigurationError

from .extension import Extension, Option, help_of, options_from, options_of, sentence, split_reference
from .lookup import find_extension, import_object, load_entry_point, offered_points, package_of

E = TypeVar("E", bound=BaseModel)


class Listed(NamedTuple):
    """What is available under a name."""

    name: str
    source: str
    """``built-in``, or the package and its version."""
    help: str
    options: tuple[Option, ...]
    problem: str = ""
    """Why it cannot be used, in one line; empty where it can."""


@dataclass(frozen=True)
class ExtensionPoint(Generic[E]):
    """A kind of extension."""

    what: str
    """What one is called in messages, such as "grader"."""
    group: str
    """The entry point group of packages."""
    base: type[E]
    """An `Extension`, or another pydantic model whose fields are its options."""
    built_in: Mapping[str, str]
    """Name → ``module:Class``, imported when it is used."""
    adapt: Callable[[Callable[..., object], str], type[E]] | None = None
    """Makes a class of a plain callable; gets what it is called in errors. None: only classes are of this kind."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of built-ins, then those of packages; nothing is imported."""
        offered = dict.fromkeys(point.name for point in offered_points(self.group))
        return (*self.built_in, *(name for name in offered if name not in self.built_in))

    def find(self, reference: str, options: Mapping[str, object] | None = None) -> E:
        """Return the object that ``reference`` names, with its options.

        Args:
            reference: A name or ``module:name``, then options as ``:key=value``.
            options: Further options; those of the reference win.

        Raises:
            ConfigurationError: Nothing is called so, it is not of this kind, or an option is unknown, missing or
                invalid.
        """
        target, given = split_reference(reference)
        what = f"{self.what} {target!r}"
        found = find_extension(target, group=self.group, what=self.what, built_in=self.built_in)
        made = self._made(found, {**(options or {}), **given}, what)
        if isinstance(made, Extension) and ":" not in target:
            made.set_name(target)
        return made

    def find_class(self, target: str) -> type[E]:
        """Return the class that a name or ``module:name`` stands for, without options.

        Raises:
            ConfigurationError: Nothing is called so, or it is not of this kind.
        """
        found = find_extension(target, group=self.group, what=self.what, built_in=self.built_in)
        return self.class_of(found, f"{self.what} {target!r}")

    def listed(self) -> list[Listed]:
        """Return what is available: built-ins first, then what packages offer, each with help and options."""
        return [*self.built_in_listed(), *self._offered_listed()]

    def built_in_listed(self) -> list[Listed]:
        """Return the built-ins, each with help and options."""
        return [self._line(name, "built-in", partial(import_object, target)) for name, target in self.built_in.items()]

    def _offered_listed(self) -> Iterator[Listed]:
        points = list(offered_points(self.group))
        for point in points:
            package = package_of(point)
            if point.name in self.built_in:
                yield Listed(point.name, package, "", (), "a built-in has the same name, and is used")
            elif sum(each.name == point.name for each in points) > 1:
                yield Listed(point.name, package, "", (), "another package offers the same name")
            else:
                yield self._line(point.name, package, partial(load_entry_point, point))

    def class_of(self, found: object, what: str) -> type[E]:
        """Return the class that an imported object is, or stands for.

        Raises:
            ConfigurationError: It is neither a class of this kind nor a callable of its form.
        """
        if isinstance(found, type) and issubclass(found, self.base):
            return found
        if isinstance(found, self.base):
            return type(found)
        if isinstance(found, type) or not callable(found) or self.adapt is None:
            got = found.__name__ if isinstance(found, type) else type(found).__name__
            expected = "" if self.adapt is None else "a callable or "
            raise ConfigurationError(
                f"{sentence(what)} is {got}, expected {expected}a subclass of {self.base.__name__}.",
                next_step="docs/reference/extension-points.md has the form of each kind.",
            )
        return self.adapt(found, what)

    def _made(self, found: object, options: Mapping[str, object], what: str) -> E:
        if isinstance(found, self.base):
            if options:
                raise ConfigurationError(
                    f"{sentence(what)} is an object with its options, got: {', '.join(options)}.",
                    next_step="Name its class to give options.",
                )
            return found.model_copy()
        return options_from(self.class_of(found, what), options, what)

    def _line(self, name: str, source: str, load: Callable[[], object]) -> Listed:
        try:
            kind = self.class_of(load(), f"{self.what} {name!r}")
            return Listed(name, source, help_of(kind), options_of(kind))
        except Exception as error:  # noqa: BLE001 - the border to another package: it costs its line
            what = error.what if isinstance(error, ConfigurationError) else f"{type(error).__name__}: {error}"
            return Listed(name, source, "", (), " ".join(what.split()))
