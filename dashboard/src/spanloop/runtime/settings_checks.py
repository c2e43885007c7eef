"""Checks of ``spanloop doctor`` on settings: what is set, where, and whether it is valid.

Invariant: no check shows the value of a secret.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast

from spanloop.foundation.errors import SpanloopError

from .check import Check


def settings_checks(data_dir: Path) -> Iterator[Check]:
    """Check each role, and each other section of ``spanloop.toml``, that has a setting which is not a default."""
    from spanloop.foundation.settings import load_configuration
    from spanloop.foundation.settings.environment import variables_set
    from spanloop.foundation.settings.roles import ROLES
    from spanloop.foundation.settings.section import VariableSection
    from spanloop.foundation.settings.sources import FILE_ORIGIN, resolve

    configuration = load_configuration(data_dir)
    for name, role in ROLES.items():
        try:
            settings, origins = resolve(role, configuration)
        except SpanloopError as error:
            yield Check(f"settings of the {name}", ok=False, detail=error.what, fix=error.next_step)
        else:
            if origins:
                values = (f"{field} = {value} ({origins[field]})" for field, value in settings if field in origins)
                yield Check(f"settings of the {name}", ok=True, detail=", ".join(values))
    for name in sorted(configuration.model_fields_set - {"serve", "models"}):
        section = getattr(configuration, name)
        variables = variables_set(type(section)) if isinstance(section, VariableSection) else {}
        values = (
            f"{field} = {_text(value)}" + (f" ({section.variable(field)})" if field in variables else "")
            for field, value in section
            if field in section.model_fields_set
        )
        yield Check(f"[{name}] of {FILE_ORIGIN}", ok=True, detail=", ".join(values))


def _text(value: object) -> str:
    """Return a value, and of a table only the keys: variables for an agent may be secrets."""
    return ", ".join(map(str, cast("Mapping[object, object]", value))) if isinstance(value, Mapping) else str(value)
