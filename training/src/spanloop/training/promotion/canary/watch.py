"""Look at the canary that runs every half minute, in a thread of the scheduler's process.

Invariant: only the active scheduler looks. Without a canary it costs a look at the control database and one at the
disk, or a request to the gateway if a setting names one. An error is logged once, and the next look tries again.
"""

import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import Final

from spanloop.foundation.paths import DataDir
from spanloop.training.jobs.database.control_database import ControlDatabase
from spanloop.training.jobs.paths import ControlPaths
from spanloop.training.jobs.processes.repeated_look import Pace, repeating
from spanloop.training.promotion.canary.gateway_canary import running_canary

from .pending_decisions import stored_pending

_EVERY_S: Final = 30.0
_log: Final = logging.getLogger(__name__)


@contextmanager
def watching_canary(data_dir: DataDir, *, is_leading: Callable[[], bool], every_s: float = _EVERY_S) -> Generator[None]:
    """Decide about canaries while the block runs and ``is_leading`` returns True."""
    look = partial(_look_once, data_dir)
    with repeating(look, name="the canary", is_leading=is_leading, pace=Pace(every_s)):
        yield


def _look_once(data_dir: DataDir) -> None:
    is_pending = stored_pending(ControlDatabase(ControlPaths.of(data_dir))) is not None
    if not is_pending and not _may_run(data_dir):
        return
    # The scheduler starts at once, and most have no canary.
    from spanloop.foundation.settings import load_configuration  # noqa: PLC0415
    from spanloop.store import connect  # noqa: PLC0415

    from ..promote import Actions  # noqa: PLC0415
    from .decision import decide_canary  # noqa: PLC0415

    rule = load_configuration(data_dir.path).promotion
    with connect(data_dir) as store:
        state = decide_canary(store, data_dir, rule, Actions(data_dir, on_progress=_log.info))
    if state is not None and state.decision is not None:
        decision = state.decision
        _log.info("canary of %s: %s; %s", decision.candidate, decision.outcome, decision.evidence.reason)


def _may_run(data_dir: DataDir) -> bool:
    """Whether a canary may run; a gateway on this machine has a file of it."""
    gateway = data_dir.find("gateway")
    if gateway is None or not gateway.is_configured:
        return (data_dir.gateway / "canary.json").exists()
    return running_canary(data_dir) is not None
