"""Pydantic AI traces itself: its own switch gives runs, model calls and tool calls with ids and errors."""

from types import ModuleType

from spanloop.instrumentation.content_capture import captures_content


def switch_on(module: ModuleType) -> None:
    """Switch on the instrumentation of all agents; settings of one agent, or of ``instrument_all()``, replace it."""
    if captures_content():
        module.Agent.instrument_all()
        return
    from pydantic_ai.models.instrumented import (  # type: ignore[import-not-found]  # noqa: PLC0415
        InstrumentationSettings,  # pyright: ignore[reportMissingImports, reportUnknownVariableType]
    )

    module.Agent.instrument_all(InstrumentationSettings(include_content=False))
