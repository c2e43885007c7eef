"""Checks of ``spanloop doctor`` on the settings of each role: what is set, where, and whether it is valid.

Invariant: no check shows the value of a secret.
"""

from collections.abc import Iterator
from pathlib import Path

from spanloop.foundation.errors import SpanloopError

from .check import Check


def settings_checks(data_dir: Path) -> Iterator[Check]:
    """Check the settings of each role that has one which is not a default."""
    from spanloop.foundation.settings import load_configuration
    from spanloop.foundation.settings.roles import ROLES
    from spanloop.foundation.settings.sources import resolve

    configuration = load_configuration(data_dir)
    for name, role in ROLES.items():
        try:
            settings, origins = resolve(role, configuration)
        except SpanloopError as error:
            yield Check(f"settings of the {name}", ok=False, detail=error.what, fix=error.next_step)
            continue
        if origins:
            values = (f"{field} = {getattr(settings, field)} ({origin})" for field, origin in origins.items())
            yield Check(f"settings of the {name}", ok=True, detail=", ".join(values))
