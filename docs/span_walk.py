"""Follow one recorded span through its conversion, and count steps back.

    python docs/span_walk.py [RECORDING]

The row is converted twice, the second time under ``sys.setprofile``. The walk is the list of functions that
``converters/convert.py`` calls, in their order, from the row to its transition. A step back is a call into a module
that the walk had left for another one. Functions that those call in turn are parts of their step: they may share
modules, such as ``messages.chat_forms``.
"""

import json
import sys
from collections.abc import Iterator
from functools import cached_property
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

import polars as pl

from spanloop.converters import convert, frames

ROOT: Final = Path(__file__).parents[1]
RECORDED: Final = ROOT / "tests" / "converters" / "converters" / "recordings" / "logfire_openai.json"
PACKAGE: Final = "spanloop."
CALLER: Final = "spanloop.converters.convert"
"""The module whose calls are the steps."""


class Step(NamedTuple):
    """A call of the conversion."""

    module: str
    function: str
    is_back: bool
    """Whether the walk had left the module before."""


def span_rows(recorded: Path) -> pl.DataFrame:
    """Return the first span of a recording as a row of ``otel_traces``."""
    spec = spec_from_file_location("recordings", ROOT / "tests/converters/converters/converters_recordings.py")
    if spec is None or spec.loader is None:
        raise FileNotFoundError("converters_recordings.py")
    recordings: Any = module_from_spec(spec)
    spec.loader.exec_module(recordings)
    frame: pl.DataFrame = recordings.span_frame(json.loads(recorded.read_text("utf-8"))["spans"][:1])
    return frame


def walk(spans: pl.DataFrame) -> list[Step]:
    """Return the steps from the rows ``spans`` to their transitions.

    Raises:
        ValueError: They become no transition.
    """
    calls: list[tuple[str, str]] = []

    def on_event(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_back is not None and _module(frame.f_back) == CALLER:
            module = _module(frame)
            if module.startswith(PACKAGE) and module != CALLER and not _is_property(module, frame.f_code.co_qualname):
                calls.append((module.removeprefix(PACKAGE), frame.f_code.co_qualname))

    no_scores, no_captures = frames.empty(frames.SCORES), frames.empty(frames.GENERATIONS)
    convert(spans, scores=no_scores, generations=no_captures)  # imports what the first conversion imports
    sys.setprofile(on_event)
    try:
        converted = convert(spans, scores=no_scores, generations=no_captures)
    finally:
        sys.setprofile(None)
    if converted.transitions.is_empty():
        raise ValueError("The recorded span is no model call.")
    return list(_steps(calls))


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _is_property(module: str, name: str) -> bool:
    """Whether a function only reads an attribute of a value."""
    owner, _, attribute = name.rpartition(".")
    value: object = vars(getattr(sys.modules[module], owner, object)).get(attribute)
    return isinstance(value, property | cached_property)


def _steps(calls: list[tuple[str, str]]) -> Iterator[Step]:
    left, current = set[str](), ""
    for module, function in calls:
        if module != current:
            yield Step(module, function, module in left)
            left.add(current)
            current = module
        else:
            yield Step(module, function, is_back=False)


def main() -> None:
    """Print the walk and the number of steps back."""
    steps = walk(span_rows(Path(sys.argv[1]) if len(sys.argv) > 1 else RECORDED))
    for number, step in enumerate(steps, 1):
        print(f"{number:>3}  {'<- ' if step.is_back else '   '}{step.module}.{step.function}")
    print(f"steps back: {sum(step.is_back for step in steps)}")


if __name__ == "__main__":
    main()
