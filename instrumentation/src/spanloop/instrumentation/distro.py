"""The entry points through which ``opentelemetry-instrument`` finds spanloop.

Invariant: neither raises. With ``OTEL_SDK_DISABLED=true`` nothing is changed.
"""

import os
from typing import Any, ClassVar, Final

from opentelemetry.instrumentation.distro import BaseDistro  # type: ignore[attr-defined]  # the module is untyped
from opentelemetry.sdk._configuration import _OTelSDKConfigurator  # pyright: ignore[reportPrivateUsage]  # for distros
from opentelemetry.util._importlib_metadata import EntryPoint

from spanloop.instrumentation.calls.threads import NAME, carry_context_into_threads
from spanloop.instrumentation.content_capture import switch_content_capture
from spanloop.instrumentation.exception_guard import guard, quiet_logs
from spanloop.instrumentation.frameworks import watch_frameworks
from spanloop.instrumentation.loading.instrumentor_choice import describe, environment_choices, module_name
from spanloop.instrumentation.loading.instrumentors import Instrumentors
from spanloop.instrumentation.notice import print_choice, silence_child_processes

_CONFIGURATOR_ENV: Final = "OTEL_PYTHON_CONFIGURATOR"
_SWITCHED_OFF_ENV: Final = "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS"
_OURS: Final = "spanloop"


def is_disabled() -> bool:
    """Whether the user switched OpenTelemetry off."""
    return os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"


def _switched_off() -> set[str]:
    return {name.strip() for name in os.environ.get(_SWITCHED_OFF_ENV, "").split(",")}


class SpanloopDistro(BaseDistro):  # type: ignore[misc]
    """Decides which instrumentors are switched on, and keeps OpenTelemetry quiet."""

    has_chosen_configurator: ClassVar[bool] = False

    def __init__(self) -> None:
        self._instrumentors = Instrumentors()

    @guard("spanloop was not set up", None)
    def _configure(self, **kwargs: Any) -> None:
        del kwargs
        if not is_disabled():
            quiet_logs()
            self._choose_our_configurator()
            self._choose_instrumentors(_switched_off())
            silence_child_processes()

    @guard("no instrumentor was chosen", None)
    def _choose_instrumentors(self, switched_off: set[str]) -> None:
        if "*" in switched_off:
            return
        if NAME not in switched_off:
            carry_context_into_threads()
        choices = environment_choices(switched_off)
        self._instrumentors = Instrumentors(choices)
        print_choice(describe(choices))
        switch_content_capture(offer.value for choice in choices for offer in choice.fitting[:1])
        watch_frameworks(switched_off | {module_name(choice.library) for choice in choices if not choice.is_native})

    @classmethod
    def _choose_our_configurator(cls) -> None:
        """Select our configurator: with several installed, OpenTelemetry takes the first that it finds."""
        if _CONFIGURATOR_ENV not in os.environ:
            os.environ[_CONFIGURATOR_ENV] = _OURS
            cls.has_chosen_configurator = True

    @guard("an instrumentor was not switched on", None)
    def load_instrumentor(self, entry_point: EntryPoint, **kwargs: Any) -> None:
        """Switch on the instrumentor of ``entry_point``; called for every instrumentor that is installed and fits."""
        if not is_disabled() and entry_point.name != NAME:  # ours does that already
            self._instrumentors.offer(entry_point, kwargs)


class SpanloopConfigurator(_OTelSDKConfigurator):
    """Sets up the providers: exporters to the collector, the attempt's attributes, and a flush at exit."""

    @guard("telemetry was not set up", None)
    def _configure(self, **kwargs: Any) -> None:
        if SpanloopDistro.has_chosen_configurator:  # the app sees its own environment
            del os.environ[_CONFIGURATOR_ENV]
        if is_disabled():
            return
        from spanloop.instrumentation.setup import plan_setup  # noqa: PLC0415  imports the encoders

        with plan_setup() as plan:
            super()._configure(**plan.arguments, **kwargs)  # type: ignore[no-untyped-call]  # pyright: ignore[reportUnknownMemberType]
        plan.finish()
