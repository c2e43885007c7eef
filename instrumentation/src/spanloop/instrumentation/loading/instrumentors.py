"""Switch instrumentors on when the app imports their libraries.

Invariant: one library gets one instrumentor, however many are installed (two would give every call two spans); a
failing instrumentor loses only its own spans; and an app that never imports a library does not pay for it.
"""

from collections.abc import Callable, Iterable
from typing import Any

from opentelemetry.util._importlib_metadata import EntryPoint
from wrapt import register_post_import_hook

from spanloop.instrumentation.exception_guard import guard, report
from spanloop.instrumentation.loading.instrumentor_choice import Choice
from spanloop.instrumentation.loading.libraries import library_of
from spanloop.instrumentation.loading.openllmetry import patch_openllmetry


class Instrumentors:
    """The instrumentors of this process, from the entry points that OpenTelemetry offers one by one.

    Args:
        choices: What was chosen for each installed library.
    """

    def __init__(self, choices: Iterable[Choice] = ()) -> None:
        self._choices = {choice.library.name: choice for choice in choices}
        self._offered = set[str]()

    def offer(self, entry_point: EntryPoint, options: dict[str, Any]) -> None:
        """Switch the instrumentor on if it is the chosen one: now, or when the app imports its library.

        Args:
            entry_point: An installed instrumentor that fits.
            options: Arguments of ``instrument``.
        """
        library = library_of(entry_point.value.partition(":")[0])
        if library is None:  # of a web framework, a database and so on
            _switch_on(entry_point, options)
            return
        if library.name in self._offered:
            return
        self._offered.add(library.name)
        # A library that is installed under another package's name has no choice: its first instrumentor serves it.
        choice = self._choices.get(library.name) or Choice(library, is_native=False, fitting=(entry_point,))
        if library.module:
            register_post_import_hook(_when_imported(choice, options), library.module)
        else:
            _switch_on_best(choice, options)


def _when_imported(choice: Choice, options: dict[str, Any]) -> Callable[[Any], None]:
    @guard("an instrumentor was not switched on", None)
    def switch_on(module: Any) -> None:
        del module
        _switch_on_best(choice, options)

    return switch_on


def _switch_on_best(choice: Choice, options: dict[str, Any]) -> None:
    for entry_point in choice.fitting:
        if _switch_on(entry_point, options):
            patch_openllmetry()
            return


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
