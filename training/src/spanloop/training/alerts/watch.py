"""Look at the rules of alerts every second, in a thread of the scheduler's process.

Invariant: only the active scheduler looks. Without a rule a look is one read of the control database. An error is
logged once, and the next look tries again; a look that takes long is followed by a longer pause, so that rules are
measured during at most a third of the time.
"""

from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

from spanloop.foundation.control.clock import utc_now
from spanloop.foundation.paths import DataDir
from spanloop.foundation.settings import load_configuration
from spanloop.training.jobs.database.control_database import ControlDatabase
from spanloop.training.jobs.paths import ControlPaths
from spanloop.training.jobs.processes.repeated_look import Pace, repeating

from .conditions import Threshold
from .delivery import Sender, Targets
from .evaluation import look_at_events, look_at_thresholds, readable_rules
from .measurements import measure
from .messages import dashboard_address

if TYPE_CHECKING:
    from spanloop.store import Store

_EVERY_S: Final = 1.0
_REST: Final = 2.0
"""The pause after a look is at least so many times as long as the look."""


@contextmanager
def watching_alerts(data_dir: DataDir, *, is_leading: Callable[[], bool], every_s: float = _EVERY_S) -> Generator[None]:
    """Look at the rules and send messages while the block runs and ``is_leading`` returns True."""
    watch = AlertWatch(data_dir)
    pace = Pace(every_s, rest=_REST)
    with repeating(watch.look, name="alerts", is_leading=is_leading, pace=pace, close=watch.close):
        yield


class AlertWatch:
    """Looks at the rules of a data directory and sends messages.

    Args:
        data_dir: An opened data directory.
    """

    def __init__(self, data_dir: DataDir) -> None:
        self._data_dir = data_dir
        self._connections = ExitStack()
        self._opened: tuple[ControlDatabase, Sender] | None = None
        self._store: Store | None = None

    def look(self) -> None:
        """Look at every rule once, and begin to send the messages that wait.

        Raises:
            SpanloopError: The control database or the store is away; what did not need it was done.
        """
        database, sender = self._database()
        rules = readable_rules(database)
        try:
            look_at_events(database, rules, now=utc_now())
            if any(isinstance(rule.condition, Threshold) for rule in rules):
                now = utc_now()
                prices = load_configuration(self._data_dir.path).prices
                look = partial(measure, self._connected(), now=now, prices=prices)
                look_at_thresholds(database, rules, look, now=now)
        except Exception:
            self.disconnect()
            raise
        finally:
            sender.send_waiting(self._targets)

    def disconnect(self) -> None:
        """Close the connection to the store; the next look opens another one."""
        self._store = None
        self._connections.close()

    def close(self) -> None:
        """Close the connection, and send nothing more."""
        self.disconnect()
        if self._opened is not None:
            self._opened[1].close()

    def _database(self) -> tuple[ControlDatabase, Sender]:
        if self._opened is None:
            database = ControlDatabase(ControlPaths.of(self._data_dir))
            self._opened = database, Sender(database)
        return self._opened

    def _targets(self) -> Targets:
        settings = load_configuration(self._data_dir.path).alerts
        return Targets(settings.channels, dashboard_address(self._data_dir, settings))

    def _connected(self) -> "Store":
        if self._store is None:
            # The scheduler starts at once, and most have no rule that needs the store.
            from spanloop.store import connect  # noqa: PLC0415

            self._store = self._connections.enter_context(connect(self._data_dir))
        return self._store
