"""Choose one instrumentor for each library of an environment.

Invariant: a library has at most one chosen instrumentor; each that is installed and not chosen has a reason.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from importlib.metadata import PackageNotFoundError, distribution
from typing import Final, NamedTuple

from opentelemetry.instrumentation.dependencies import get_dist_dependency_conflicts
from opentelemetry.util._importlib_metadata import (
    EntryPoint,
    entry_points,  # pyright: ignore[reportUnknownVariableType]
)

from spanloop.instrumentation.loading.libraries import LIBRARIES, Library, Native, library_of, rank

GROUP: Final = "opentelemetry_instrumentor"
"""The entry points of instrumentors."""
SWITCHED_OFF: Final = "switched off by OTEL_PYTHON_DISABLED_INSTRUMENTATIONS"


class Skipped(NamedTuple):
    """An installed instrumentor that stays off."""

    package: str
    reason: str
    is_misfit: bool = False
    """Whether the instrumentor does not fit the installed library."""


class Choice(NamedTuple):
    """What instruments one installed library."""

    library: Library
    is_native: bool
    """Whether spanloop's own module of the framework is on."""
    fitting: tuple[EntryPoint, ...] = ()
    """Instrumentors that may be switched on, best first; the first that works is."""
    skipped: tuple[Skipped, ...] = ()

    @property
    def by(self) -> tuple[str, ...]:
        """Names of what instruments the library, as a user knows them; empty if nothing does."""
        chosen = [package_of(self.fitting[0])] if self.fitting else []
        return (*chosen, *(["spanloop"] if self.is_native else []))


def package_of(entry_point: EntryPoint) -> str:
    """Return the package that an entry point is of."""
    return entry_point.dist.name if entry_point.dist is not None else entry_point.value.partition(":")[0]


def _conflict(entry_point: EntryPoint) -> str:
    """Return why an instrumentor does not fit the installed packages; empty if it does."""
    if entry_point.dist is None:
        return ""
    conflict = get_dist_dependency_conflicts(entry_point.dist)
    if conflict is None:
        return ""
    needed = conflict.required or ", ".join(map(str, conflict.required_any or ()))
    found = conflict.found or ", ".join(map(str, conflict.found_any or ())) or "nothing of that name"
    return f"needs {str(needed).partition(';')[0].strip()}, found {found}"


def _is_installed(library: Library) -> bool:
    for name in library.distributions:
        try:
            distribution(name)
        except PackageNotFoundError:
            continue
        return True
    return False


def choose(
    installed: Iterable[EntryPoint],
    switched_off: Collection[str] = (),
    *,
    is_installed: Callable[[Library], bool] = _is_installed,
    conflict: Callable[[EntryPoint], str] = _conflict,
) -> tuple[Choice, ...]:
    """Choose for each library that is installed.

    Args:
        installed: Instrumentors of the environment.
        switched_off: Names of instrumentors that the user switched off; ``*`` means all.
        is_installed: Whether a library is.
        conflict: Why an instrumentor does not fit; empty if it does.
    """
    offers: dict[str, list[EntryPoint]] = {}
    for entry_point in installed:
        if library := library_of(entry_point.value.partition(":")[0]):
            offers.setdefault(library.name, []).append(entry_point)
    return tuple(
        _choose_one(library, offers.get(library.name, ()), switched_off, conflict)
        for library in LIBRARIES
        if is_installed(library)
    )


def _choose_one(
    library: Library,
    offers: Sequence[EntryPoint],
    switched_off: Collection[str],
    conflict: Callable[[EntryPoint], str],
) -> Choice:
    fitting: list[EntryPoint] = []
    skipped: list[Skipped] = []
    is_native = library.native is not Native.NONE and not {"*", module_name(library)} & set(switched_off)
    for offer in sorted(offers, key=lambda offer: rank(library, offer.value.partition(":")[0])):
        if {"*", offer.name} & set(switched_off):
            skipped.append(Skipped(package_of(offer), SWITCHED_OFF))
        elif problem := conflict(offer):
            skipped.append(Skipped(package_of(offer), problem, is_misfit=True))
        elif is_native and library.native is Native.FIRST:
            skipped.append(Skipped(package_of(offer), "spanloop records the same"))
        elif fitting:
            skipped.append(Skipped(package_of(offer), f"{package_of(fitting[0])} records more or the same"))
            fitting.append(offer)
        else:
            fitting.append(offer)
    is_native = is_native and not (fitting and library.native is Native.LAST)
    return Choice(library, is_native, tuple(fitting), tuple(skipped))


def module_name(library: Library) -> str:
    """Return the name of the library's module in ``frameworks``, which also switches it off."""
    return "mistralai" if library.name == "mistral" else library.name.replace("-", "_")


def environment_choices(switched_off: Collection[str] = ()) -> tuple[Choice, ...]:
    """Choose among the instrumentors that this environment had when the process first asked for them."""
    return choose(entry_points(group=GROUP), switched_off)


def describe(choices: Iterable[Choice]) -> str:
    """Say in one line what was chosen and what stays off; empty when nothing was left off."""
    parts = [
        f"{choice.library.name}: {' + '.join(choice.by) or 'nothing'} ("
        + "; ".join(f"not {skip.package}: {skip.reason}" for skip in choice.skipped)
        + ")"
        for choice in choices
        if any(skip.reason != SWITCHED_OFF for skip in choice.skipped)
    ]
    return f"instrumentors of {', '.join(parts)}" if parts else ""
