"""The agent whose calls are timed; runs in an environment of its own, instrumented or not.

    python -m instrumenting.agent

For each line ``KIND N`` on its standard input it makes N calls of that kind, and answers with the CPU microseconds of
one. All threads of the process count, and so does everything until the spans of these calls are acknowledged.

``model`` is a chat completion by the OpenAI SDK, ``tool`` a call of a LangChain tool, and ``span`` a span with the
attributes of a model call that the app writes itself: no instrumentor has a part in it.
"""

import json
import sys
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from instrumenting import model
from opentelemetry import trace


def search(query: str, limit: int = 5) -> str:
    """Search the timetable."""
    return f"{limit} results for {query}"


def calls() -> Mapping[str, Callable[[], object]]:
    """Each kind's call."""
    client, histories = model.client(), model.histories()
    tool: Any = import_module("langchain_core.tools").tool(search)  # not in the environment that checks types
    texts = [json.dumps(next(histories)) for _ in range(model.HISTORIES)]
    place = iter(range(10**12))
    tracer = trace.get_tracer("app")

    def ask_model() -> object:
        return client.chat.completions.create(model=model.NAME, messages=next(histories), tools=model.TOOLS)

    def write_span() -> None:
        with tracer.start_as_current_span("chat scripted") as span:
            for name, value in model.span_attributes(texts[next(place) % len(texts)]).items():
                span.set_attribute(name, value)

    return {"model": ask_model, "tool": lambda: tool.invoke(model.arguments()), "span": write_span}


def flush() -> None:
    """Send the spans that are buffered, if there are any."""
    force_flush: Callable[[], object] | None = getattr(trace.get_tracer_provider(), "force_flush", None)
    if force_flush is not None:
        force_flush()


def main() -> None:
    """Measure what is asked for."""
    by_kind = calls()
    for line in sys.stdin:
        kind, count = line.split()
        call = by_kind[kind]
        before = time.process_time()
        for _ in range(int(count)):
            call()
        flush()
        print(1e6 * (time.process_time() - before) / int(count), flush=True)


if __name__ == "__main__":
    main()
