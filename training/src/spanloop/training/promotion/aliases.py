"""Aliases of model versions, set by hand: ``champion``, ``candidate`` or any other name.

Invariant: an alias names a registered version. ``champion`` is the one that a promotion rule compares with; setting it
by hand deploys nothing.
"""

import os

from spanloop.foundation.control.clock import Clock, utc_now
from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.version_names import is_alias, number_of
from spanloop.training.jobs.database.control_database import ControlDatabase
from spanloop.training.jobs.paths import ControlPaths, HasPath
from spanloop.training.models.aliases import REMOVED, Alias, find_alias, list_aliases, move_alias, no_such_alias
from spanloop.training.models.registry import Registry


class Aliases:
    """The aliases of one data directory.

    Args:
        data_dir: The data directory, or its path; it must exist.
        clock: Returns the current time.
    """

    def __init__(self, data_dir: str | os.PathLike[str] | HasPath, *, clock: Clock = utc_now) -> None:
        self._database = ControlDatabase(ControlPaths.of(data_dir))
        self._registry = Registry(data_dir)
        self._clock = clock

    def list(self, name: str = "") -> tuple[Alias, ...]:
        """Return all aliases, or those of one model, by name."""
        with self._database.read() as session:
            return tuple(list_aliases(session, name))

    def find(self, name: str, alias: str) -> Alias | None:
        """Return where an alias is; None when the model has no such alias."""
        with self._database.read() as session:
            return find_alias(session, name, alias)

    def set(self, reference: str, alias: str) -> Alias:
        """Let ``alias`` of the version's model name this version.

        Raises:
            ConfigurationError: ``alias`` cannot be one.
            JobError: There is no such version, or it was pruned.
        """
        if not is_alias(alias):
            raise ConfigurationError(
                f"{alias!r} cannot be an alias: expected letters, digits, '.', '_' and '-', beginning with a letter, "
                "and no version such as v3.",
                next_step="Choose another name, such as champion.",
            )
        model, now = self._registry.get(reference), self._clock()
        self._registry.require_weights(model)
        with self._database.write() as session:
            current = find_alias(session, model.name, alias)
            if current is not None and current.version == model.version:
                return current
            before = "" if current is None else current.reference
            move_alias(session, model.name, alias, number_of(model.version), rolls_back_to=before, now=now)
        return Alias(model.name, alias, model.version, before, now)

    def remove(self, name: str, alias: str) -> None:
        """Remove an alias; the version stays.

        Raises:
            JobError: There is no such alias.
        """
        with self._database.write() as session:
            if find_alias(session, name, alias) is None:
                raise no_such_alias(session, name, alias)
            move_alias(session, name, alias, REMOVED, rolls_back_to="", now=self._clock())
