"""Look at the canary that runs every half minute, in a thread of the scheduler's process.

Invariant: without a canary it costs two looks at the disk. An error is logged once, and the next look tries again.
"""

import logging
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from spanloop.datadir import DataDir
from spanloop.semconv.errors import SpanloopError

_EVERY_S: Final = 30.0
_log: Final = logging.getLogger(__name__)


@contextmanager
def watching_canary(data_dir: DataDir, *, every_s: float = _EVERY_S) -> Generator[None]:
    """Decide about canaries while the block runs."""
    stop = threading.Event()
    thread = threading.Thread(target=_watch, args=(data_dir, every_s, stop), name="canary-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()


def _watch(data_dir: DataDir, every_s: float, stop: threading.Event) -> None:
    last_error = ""
    while not stop.wait(every_s):
        try:
            _look_once(data_dir)
            last_error = ""
        except (SpanloopError, OSError) as error:
            if str(error) != last_error:
                _log.error("the canary: %s", error)
            last_error = str(error)


def _look_once(data_dir: DataDir) -> None:
    if not (data_dir.gateway / "canary.json").exists() and not (data_dir.gateway / "canary_verdict.json").exists():
        return
    # The scheduler starts at once, and most have no canary.
    from spanloop.configuration import load_configuration  # noqa: PLC0415
    from spanloop.store import connect  # noqa: PLC0415

    from .canary_decision import decide_canary  # noqa: PLC0415
    from .promote import Actions  # noqa: PLC0415

    rule = load_configuration(data_dir.path).promotion
    with connect(data_dir) as store:
        state = decide_canary(store, data_dir, rule, Actions(data_dir, on_progress=_log.info))
    if state is not None and state.decision is not None:
        decision = state.decision
        _log.info("canary of %s: %s; %s", decision.candidate, decision.verdict, decision.evidence.reason)
