"""Switch instrumentors on when the app imports their libraries.

Invariant: one library gets one instrumentor, however many are installed (two would give every call two spans); a
failing instrumentor loses only its own spans; and an app that never imports the openai package never pays for it.
"""

from collections.abc import Callable
from typing import Any, Final

from opentelemetry.util._importlib_metadata import EntryPoint
from wrapt import register_post_import_hook

from spanloop.instrumentation.exception_guard import guard, report
from spanloop.instrumentation.openllmetry import patch_openllmetry

_LIBRARY_OF: Final = {"openai": "openai"}
"""Instrumentors (by entry point name) that wait until the app imports the library: they import it themselves."""

_PREFERRED_MODULES: Final = (
    "opentelemetry.instrumentation.openai",  # OpenLLMetry
    "opentelemetry.instrumentation.genai.openai",
    "opentelemetry.instrumentation.openai_v2",
    "openinference.instrumentation.openai",
)
"""The converters know all of these; most recordings are of the first."""


class Instrumentors:
    """The instrumentors of this process, from the entry points that OpenTelemetry offers one by one."""

    def __init__(self) -> None:
        self._pending: dict[str, list[tuple[EntryPoint, dict[str, Any]]]] = {}

    def offer(self, entry_point: EntryPoint, options: dict[str, Any]) -> None:
        """Switch the instrumentor on: now, or when the app imports its library."""
        library = _LIBRARY_OF.get(entry_point.name)
        if library is None:
            _switch_on(entry_point, options)
            return
        is_first = library not in self._pending
        self._pending.setdefault(library, []).append((entry_point, options))
        if is_first:
            register_post_import_hook(self._when_imported(library), library)

    def _when_imported(self, library: str) -> Callable[[Any], None]:
        @guard("an instrumentor was not switched on", None)
        def switch_on_best(module: Any) -> None:
            del module
            candidates = sorted(self._pending.get(library, []), key=lambda offer: _rank(offer[0]))
            for entry_point, options in candidates:
                if _switch_on(entry_point, options):
                    patch_openllmetry()
                    return

        return switch_on_best


def _rank(entry_point: EntryPoint) -> int:
    module = entry_point.value.partition(":")[0]
    return _PREFERRED_MODULES.index(module) if module in _PREFERRED_MODULES else len(_PREFERRED_MODULES)


def _switch_on(entry_point: EntryPoint, options: dict[str, Any]) -> bool:
    try:
        instrumentor: Any = entry_point.load()
        instrumentor().instrument(**options)
    except ModuleNotFoundError:
        return False  # the instrumented library is not installed
    except Exception as error:  # noqa: BLE001  one instrumentor among many, inside a user's process
        report(f"instrumentor {entry_point.value} failed", error)
        return False
    return True
