"""PROVISIONAL stand-in for tools1's helper."""
import json
from contextlib import contextmanager
from typing import Any
from opentelemetry import trace
from opentelemetry.trace import Status, StatusCode
from spanloop.instrumentation.exception_guard import guarded


class ToolSpan:
    def __init__(self, span):
        self._span = span

    def is_current(self):
        return trace.use_span(self._span, end_on_exit=False, record_exception=False, set_status_on_exception=False)

    def end(self): self._span.end()

    def set_result(self, result: Any) -> None:
        with guarded("x"):
            self._span.set_attribute("gen_ai.tool.call.result", result if isinstance(result, str) else json.dumps(result, default=str))

    def fail(self, error: "BaseException | str") -> None:
        with guarded("x"):
            if isinstance(error, BaseException):
                self._span.record_exception(error)
                self._span.set_attribute("error.type", type(error).__qualname__)
                self._span.set_status(Status(StatusCode.ERROR, str(error)))
            else:
                self._span.set_attribute("error.type", "tool_error")
                self._span.set_status(Status(StatusCode.ERROR, error))


@contextmanager
def tool_span(name, *, call_id="", arguments=None):
    tracer = trace.get_tracer("spanloop.instrumentation.frameworks")
    a = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name}
    if call_id: a["gen_ai.tool.call.id"] = call_id
    if arguments is not None: a["gen_ai.tool.call.arguments"] = arguments if isinstance(arguments, str) else json.dumps(arguments, default=str)
    with tracer.start_as_current_span(f"execute_tool {name}", attributes=a, record_exception=False, set_status_on_exception=False) as span:
        t = ToolSpan(span)
        try:
            yield t
        except Exception as e:
            t.fail(e)
            raise


def start(name, *, call_id="", arguments=None):
    tracer = trace.get_tracer("spanloop.instrumentation.frameworks")
    a = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name}
    if call_id: a["gen_ai.tool.call.id"] = call_id
    if arguments is not None: a["gen_ai.tool.call.arguments"] = arguments if isinstance(arguments, str) else json.dumps(arguments, default=str)
    return ToolSpan(tracer.start_span(f"execute_tool {name}", attributes=a))


def start_agent(name):
    tracer = trace.get_tracer("spanloop.instrumentation.frameworks")
    a = {"gen_ai.operation.name": "invoke_agent"}
    if name: a["gen_ai.agent.name"] = name
    return ToolSpan(tracer.start_span(f"invoke_agent {name}", attributes=a))


@contextmanager
def agent_span(name):
    span = start_agent(name)
    try:
        with span.is_current():
            yield span
    except Exception as e:
        span.fail(e)
        raise
    finally:
        span.end()


async def in_span(span, items):
    """Each step of an async generator in the span, not the consumer's code."""
    try:
        while True:
            with span.is_current():
                try:
                    item = await anext(items)
                except StopAsyncIteration:
                    return
            yield item
    except Exception as error:
        span.fail(error)
        raise
    finally:
        span.end()
        await items.aclose()
