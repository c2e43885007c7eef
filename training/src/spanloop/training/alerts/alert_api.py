"""The API of alerts for the command line, the dashboard and users' scripts: add, list, test and remove rules.

Invariant: it only writes requests into the control database; the scheduler measures and sends. A test goes the way of
every alert.
"""

import os
import re
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from spanloop.foundation.control.clock import Clock, utc_now
from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.settings import load_configuration
from spanloop.training.jobs.database.control_database import ControlDatabase
from spanloop.training.jobs.paths import ControlPaths, HasPath

from .conditions import Condition, Figure, Threshold, parse_condition
from .entities import TEST_CAUSE, Alert, MessageStatus, Rule, rule_from_row
from .evaluation import readable_rules
from .stored_alerts import (
    delete_rule,
    find_rule,
    get_alert,
    insert_alert,
    insert_rule,
    list_alerts,
    list_rules,
    open_alert_of,
)

__all__ = ["AlertApi", "check_channels", "configured_channels"]

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class AlertApi:
    """Adds, lists, tests and removes the rules of a data directory.

    Thread-safe and cheap to construct.

    Args:
        data_dir: The data directory, or its path; it must exist.
        clock: Returns the current time.

    Raises:
        DataDirectoryError: The control database is unreachable, or a newer spanloop wrote it.
    """

    def __init__(self, data_dir: str | os.PathLike[str] | HasPath, *, clock: Clock = utc_now) -> None:
        self._paths = ControlPaths.of(data_dir)
        self._database = ControlDatabase(self._paths)
        self._clock = clock

    def add(self, name: str, condition: str, channels: Sequence[str]) -> Rule:
        """Add a rule; the scheduler looks at it from its next look on.

        Raises:
            ConfigurationError: The name is taken or invalid, the condition cannot be read, or spanloop.toml has no such
                channel, or no price for a rule on cost.
        """
        if _NAME.fullmatch(name) is None:
            raise ConfigurationError(
                f"{name!r} is no name of an alert rule.",
                next_step="Use 1 to 64 letters, digits, dots, dashes and underscores; begin with a letter or digit.",
            )
        check_channels(channels, configured_channels(self._paths.root))
        parsed = parse_condition(condition)
        _check_prices(parsed, self._paths.root)
        rule = Rule(name, parsed, tuple(dict.fromkeys(channels)), self._clock())
        with self._database.write() as session:
            insert_rule(session, rule)
        return rule

    def rules(self) -> tuple[Rule, ...]:
        """Return all rules, by name; those of another version of spanloop are logged and skipped."""
        return tuple(readable_rules(self._database))

    def firing(self) -> dict[str, Alert]:
        """Return the open alert of each rule that fires, by the rule's name."""
        with self._database.read() as session:
            rows = [open_alert_of(session, row.name) for row in list_rules(session)]
            alerts = [get_alert(session, row.alert_id) for row in rows if row is not None]
        return {alert.rule: alert for alert in alerts if alert is not None}

    def remove(self, name: str) -> None:
        """Delete a rule; its history stays, and its messages that wait are given up.

        Raises:
            ConfigurationError: There is no such rule.
        """
        with self._database.write() as session:
            delete_rule(session, name, now=self._clock())

    def test(self, name: str) -> Alert:
        """Store a test message for each channel of a rule; the scheduler sends it once, within seconds.

        Raises:
            ConfigurationError: There is no such rule.
        """
        with self._database.write() as session:
            rule = rule_from_row(find_rule(session, name))
            row = insert_alert(
                session,
                rule,
                MessageStatus.TEST,
                cause=f"{TEST_CAUSE}{secrets.token_hex(8)}",
                detail="this is a test",
                link="alerts",
                now=self._clock(),
            )
            alert_id = row.alert_id
        return self.get(alert_id)

    def get(self, alert_id: int) -> Alert:
        """Return an alert.

        Raises:
            ConfigurationError: There is no such alert.
        """
        with self._database.read() as session:
            alert = get_alert(session, alert_id)
        if alert is None:
            raise ConfigurationError(f"There is no alert {alert_id}.", next_step="See them: spanloop alerts history")
        return alert

    def history(self, *, rule: str = "", limit: int = 100) -> tuple[Alert, ...]:
        """Return alerts with their messages, newest first; also those of rules that were removed."""
        with self._database.read() as session:
            return list_alerts(session, rule=rule, limit=limit)


def configured_channels(data_dir: Path) -> tuple[str, ...]:
    """Return the names of ``[alerts.channels]``.

    Raises:
        ConfigurationError: spanloop.toml cannot be read.
    """
    return tuple(load_configuration(data_dir).alerts.channels)


def check_channels(channels: Sequence[str], known: Sequence[str]) -> None:
    """Check that a rule has a channel, and that spanloop.toml has all of them.

    Raises:
        ConfigurationError: It does not.
    """
    unknown = [channel for channel in channels if channel not in known]
    if channels and not unknown:
        return
    what = f"there is no channel {unknown[0]!r} in [alerts.channels]" if unknown else "an alert needs a channel"
    names = f"Use one of {', '.join(known)}" if known else "Add [alerts.channels.NAME] to spanloop.toml"
    raise ConfigurationError(f"{what[0].upper()}{what[1:]}.", next_step=f"{names}; see docs/how-to/alerts.md.")


def _check_prices(condition: Condition, data_dir: Path) -> None:
    """Check that there are prices for a rule on cost.

    Raises:
        ConfigurationError: spanloop.toml has no price.
    """
    if not isinstance(condition, Threshold) or condition.figure is not Figure.COST:
        return
    if not load_configuration(data_dir).prices.models:
        raise ConfigurationError(
            f"{str(condition)!r}: no cost is known, because spanloop.toml has no price; an unknown price is not zero.",
            next_step="Add [[prices.models]] to spanloop.toml: docs/how-to/numbers.md.",
        )
