"""Arguments for OpenTelemetry's own set-up.

Invariant: a signal that the user configured (``OTEL_TRACES_EXPORTER``, ``OTEL_LOGS_EXPORTER``, ``OTEL_CONFIG_FILE``) is
set up by OpenTelemetry as configured; ours are only the defaults, the OTLP/HTTP exporters, the attempt's attributes
and the exit's time limit. Metrics have no default. The environment that the app sees is not changed.
"""

import os
import sys
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path, PurePath
from typing import Any, Final

from opentelemetry import trace
from opentelemetry._logs import get_logger_provider

from spanloop.instrumentation.calls.model_call_processor import ModelCallProcessor
from spanloop.instrumentation.calls.untraced_calls import UntracedCalls
from spanloop.instrumentation.notice import print_once
from spanloop.instrumentation.sending.endpoint import Signal, settings_from_environment
from spanloop.instrumentation.sending.exporters import SpanloopLogExporter, SpanloopSpanExporter
from spanloop.instrumentation.sending.lifetime import BoundedLogProcessor, BoundedSpanProcessor
from spanloop.instrumentation.sending.sender import Sender
from spanloop.instrumentation.sending.termination import Termination
from spanloop.instrumentation.stamping import AttemptLogProcessor, AttemptSpanProcessor

_HTTP: Final = "http/protobuf"
_CONFIG_FILE_ENV: Final = "OTEL_CONFIG_FILE"
_METRICS_ENV: Final = "OTEL_METRICS_EXPORTER"


@dataclass(frozen=True, slots=True)
class Plan:
    """Arguments for OpenTelemetry's configurator, and the steps after it.

    Attributes:
        arguments: Keyword arguments of the SDK's configurator.
        senders: The senders of our exporters.
        untraced_calls: One of the span processors; None where the user configures OpenTelemetry in a file, which may
            sample.
    """

    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    senders: tuple[Sender, ...] = ()
    untraced_calls: UntracedCalls | None = None

    def finish(self) -> None:
        """Install the flush on termination, and watch for model calls without a span."""
        if self.untraced_calls is not None:
            self.untraced_calls.start()
        Termination(self._flush).install()

    def _flush(self) -> None:
        for sender in self.senders:
            sender.hurry()
        for provider in (get_logger_provider(), trace.get_tracer_provider()):
            force_flush: Callable[[], object] | None = getattr(provider, "force_flush", None)
            if force_flush is not None:
                force_flush()
        for sender in self.senders:
            sender.relax()


@contextmanager
def plan_setup() -> Generator[Plan]:
    """Yield the plan for this process; the block runs with the environment that OpenTelemetry's set-up needs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if os.environ.get(_CONFIG_FILE_ENV):
            yield Plan()
            _add_attempt_processor()
            return
        exporters = {signal: _exporters_left_to_opentelemetry(signal) for signal in Signal}
        overrides = {
            f"OTEL_{signal.upper()}_EXPORTER": ",".join(names) or "none" for signal, (_, names) in exporters.items()
        }
        overrides[_METRICS_ENV] = ",".join(_metrics_exporters()) or "none"
        if not os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL"):
            overrides["OTEL_EXPORTER_OTLP_PROTOCOL"] = _HTTP
        with _environment(overrides):
            yield _plan(with_traces=exporters[Signal.TRACES][0], with_logs=exporters[Signal.LOGS][0])


def _plan(*, with_traces: bool, with_logs: bool) -> Plan:
    untraced_calls = UntracedCalls()
    spans: list[Any] = [AttemptSpanProcessor(), untraced_calls, ModelCallProcessor()]
    logs: list[Any] = [AttemptLogProcessor()]
    senders: list[Sender] = []
    if with_traces:
        span_exporter = SpanloopSpanExporter(settings_from_environment(Signal.TRACES))
        spans.append(BoundedSpanProcessor(span_exporter))
        senders.append(span_exporter.sender)
    if with_logs:
        log_exporter = SpanloopLogExporter(settings_from_environment(Signal.LOGS))
        logs.append(BoundedLogProcessor(log_exporter))
        senders.append(log_exporter.sender)
    arguments = {
        "span_processors": spans,
        "log_record_processors": logs,
        "export_span_processor": BoundedSpanProcessor,
        "export_log_record_processor": BoundedLogProcessor,
        "resource_attributes": {} if names_service_itself(os.environ) else {"service.name": default_service_name()},
    }
    return Plan(arguments, tuple(senders), untraced_calls)


def _exporters_left_to_opentelemetry(signal: Signal) -> tuple[bool, list[str]]:
    """Return whether our exporter serves ``signal``, and the exporters that OpenTelemetry sets up beside it."""
    names, http = _requested_exporters(signal) or ["otlp"], _otlp_http_names(signal)
    return any(name in http for name in names), [name for name in names if name not in {*http, "none"}]


def _metrics_exporters() -> list[str]:
    """Return the configured exporters of metrics. A missing OTLP/HTTP exporter must not cost the spans."""
    names, http = _requested_exporters("metrics"), _otlp_http_names("metrics")
    if http.isdisjoint(names) or entry_points(group="opentelemetry_metrics_exporter", name="otlp_proto_http"):
        return names
    print_once(
        f"no metrics are sent by OTLP/HTTP: {_METRICS_ENV} asks for it, and spanloop does not bring the exporter "
        "(pip install opentelemetry-exporter-otlp-proto-http). Spans and log events are sent"
    )
    return [name for name in names if name not in http]


def _requested_exporters(signal: str) -> list[str]:
    named = os.environ.get(f"OTEL_{signal.upper()}_EXPORTER", "").split(",")
    return [name.strip() for name in named if name.strip()]


def _otlp_http_names(signal: str) -> frozenset[str]:
    """Return the exporter names that mean OTLP/HTTP; ``otlp`` does unless a variable sets another protocol."""
    specific = os.environ.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL")
    protocol = specific or os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL") or _HTTP
    return frozenset({"otlp", "otlp_proto_http"} if protocol.strip() == _HTTP else {"otlp_proto_http"})


def _add_attempt_processor() -> None:
    add_span_processor = getattr(trace.get_tracer_provider(), "add_span_processor", None)
    if add_span_processor is not None:
        add_span_processor(AttemptSpanProcessor())
        add_span_processor(ModelCallProcessor())


@contextmanager
def _environment(overrides: Mapping[str, str]) -> Generator[None]:
    previous = {name: os.environ.get(name) for name in overrides}
    os.environ.update(overrides)
    try:
        yield
    finally:
        for name, value in previous.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


_OPTIONS_WITH_VALUE: Final = frozenset({"-W", "-X", "--check-hash-based-pycs"})
_FALLBACK: Final = "python"
_MULTIPROCESSING: Final = "from multiprocessing."


def default_service_name(command: Sequence[str] | None = None) -> str:
    """Return the script's or module's name in ``command`` (default: this interpreter's command line).

    ``python app/agent.py`` is ``agent``, ``python -m pkg.tool`` is ``pkg.tool``, a folder or its ``__main__.py``
    is the folder's name, a ``multiprocessing`` child has its parent's name, and ``-c`` and standard input are
    ``python``.
    """
    arguments = iter((sys.orig_argv if command is None else command)[1:])
    for argument in arguments:
        if argument == "-m":
            return next(arguments, "") or _FALLBACK
        if argument.startswith("-m"):
            return argument[2:]
        if argument.startswith("-c"):
            code = argument[2:] or next(arguments, "")
            return default_service_name(_command_of_parent()) if _MULTIPROCESSING in code else _FALLBACK
        if argument == "-":
            return _FALLBACK
        if argument in _OPTIONS_WITH_VALUE:
            next(arguments, "")
        elif not argument.startswith("-"):
            return _name_of_script(argument)
    return _FALLBACK


def names_service_itself(environment: Mapping[str, str]) -> bool:
    """Whether the user's OpenTelemetry variables give a service name."""
    if environment.get("OTEL_SERVICE_NAME", "").strip():
        return True
    pairs = environment.get("OTEL_RESOURCE_ATTRIBUTES", "").split(",")
    return any(pair.partition("=")[0].strip() == "service.name" for pair in pairs)


def _command_of_parent() -> list[str]:
    try:
        command = Path(f"/proc/{os.getppid()}/cmdline").read_bytes()
    except OSError:  # no such file system here, or the parent is gone: the name is unknown
        return []
    return [argument.decode(errors="replace") for argument in command.split(b"\0")[:-1]]


def _name_of_script(script: str) -> str:
    path = PurePath(os.path.abspath(script))  # noqa: PTH100  a pure path, whatever the file system says
    name = path.parent.name if path.stem == "__main__" else path.name.removesuffix(".py").removesuffix(".pyz")
    return name or _FALLBACK
