"""Many spans and rewards of an app whose collector is away: does what waits, or what was lost, fill the memory?

    python -m instrumenting.many_spans SPANS

Prints the resident MiB after each hundredth of them. A task has ten spans and a reward.
"""

import os
import sys
from pathlib import Path
from typing import Final

from instrumenting import model
from opentelemetry import trace

from spanloop.instrumentation import reward, task

SPANS_A_TASK: Final = 10


def main() -> None:
    """Write the spans."""
    spans = int(sys.argv[1])
    tracer, texts = trace.get_tracer("app"), [model.text(2_000) for _ in range(100)]
    for number in range(spans // SPANS_A_TASK):
        with task(f"task-{number}"):
            for step in range(SPANS_A_TASK):
                messages = f"{number}.{step} {texts[number % len(texts)]}"  # a string of its own for each span
                with tracer.start_as_current_span("chat scripted") as span:
                    span.set_attributes(model.span_attributes(messages))
            reward(1.0)
        if (number + 1) % (spans // SPANS_A_TASK // 100) == 0:
            print(resident_mib(), flush=True)


def resident_mib() -> float:
    """Resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


if __name__ == "__main__":
    main()
