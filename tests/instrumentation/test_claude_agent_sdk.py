"""The program that the Claude Agent SDK starts gets the variables with which it traces itself. The transport is a fake
of the SDK's shape; `make test-frameworks` runs the SDK itself.
"""

import asyncio
import os
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from spanloop.instrumentation.frameworks import claude_agent_sdk


@dataclass
class Options:
    """What an app asks for."""

    env: dict[str, str] = field(default_factory=dict[str, str])


class Transport:
    """What starts the program."""

    fails = False

    def __init__(self, options: Options) -> None:
        self._options = options
        self.environment: dict[str, str] = {}
        self.span_id = 0

    async def connect(self) -> None:
        """Start the program, in the environment of the process and the options."""
        self.environment = {**os.environ, **self._options.env}
        self.span_id = trace.get_current_span().get_span_context().span_id
        if self.fails:
            raise FileNotFoundError("claude")

    async def close(self) -> None:
        """End the program."""


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    for name in list(os.environ):
        if name.startswith(("OTEL_", "CLAUDE_CODE_", "TRACELOOP_")):
            monkeypatch.delenv(name)
    memory, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(memory))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    return memory


def transport(options: Options | None = None, **members: Any) -> Transport:
    module = ModuleType("subprocess_cli")
    traced: Any = type("SubprocessCLITransport", (Transport,), members)
    for name in ("connect", "close"):
        setattr(traced, name, getattr(Transport, name))
    vars(module)["SubprocessCLITransport"] = traced
    claude_agent_sdk.trace_sessions(module)
    made: Transport = traced(options or Options())
    return made


def environment(options: Options | None = None) -> dict[str, str]:
    session = transport(options)
    asyncio.run(session.connect())
    return session.environment


def test_a_session_is_a_span_around_the_programs_own(sessions: InMemorySpanExporter) -> None:
    session = transport()
    asyncio.run(session.connect())
    assert not sessions.get_finished_spans()
    asyncio.run(session.close())
    (span,) = sessions.get_finished_spans()
    assert span.context is not None
    assert (span.name, span.context.span_id) == ("invoke_agent", session.span_id)


def test_a_program_that_does_not_start_is_a_failed_session(sessions: InMemorySpanExporter) -> None:
    session = transport(fails=True)
    with pytest.raises(FileNotFoundError):
        asyncio.run(session.connect())
    (span,) = sessions.get_finished_spans()
    assert (span.attributes or {})["error.type"] == "FileNotFoundError"
    asyncio.run(session.close())


def test_the_program_sends_spans_and_complete_requests(
    sessions: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    del sessions
    before = dict(os.environ)
    monkeypatch.setattr(claude_agent_sdk, "discover_collector", lambda: "http://127.0.0.1:4318")
    options = Options()
    found = environment(options)
    assert found["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://127.0.0.1:4318"
    assert (found["CLAUDE_CODE_ENABLE_TELEMETRY"], found["OTEL_LOG_RAW_API_BODIES"]) == ("1", "1")
    assert found["OTEL_SERVICE_NAME"]
    assert (options.env, dict(os.environ)) == ({}, before)


def test_what_the_user_or_the_app_set_stays(sessions: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch) -> None:
    del sessions
    monkeypatch.setenv("CLAUDE_CODE_ENABLE_TELEMETRY", "0")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.name=mine")
    found = environment(Options({"OTEL_LOG_RAW_API_BODIES": "0"}))
    assert (found["CLAUDE_CODE_ENABLE_TELEMETRY"], found["OTEL_LOG_RAW_API_BODIES"]) == ("0", "0")
    assert "OTEL_SERVICE_NAME" not in found


def test_without_content_capture_the_program_sends_no_messages(
    sessions: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    del sessions
    monkeypatch.setenv("TRACELOOP_TRACE_CONTENT", "false")
    found = environment()
    assert "CLAUDE_CODE_ENABLE_TELEMETRY" in found
    assert not [name for name in found if name.startswith("OTEL_LOG_")]


def test_nothing_is_written_into_the_pipe_that_the_sdk_reads(
    sessions: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    del sessions
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp,console")
    monkeypatch.setenv("OTEL_LOGS_EXPORTER", "console")
    found = environment()
    assert (found["OTEL_TRACES_EXPORTER"], found["OTEL_LOGS_EXPORTER"]) == ("otlp", "none")
