"""Store the finished stages of an experiment, so that a rerun continues after them.

Invariant: a stage is in the file when, and only when, its whole result is in the data directory. The file is replaced
atomically; a kill between the two costs one stage, which then runs again.
"""

import json
from pathlib import Path
from typing import Any

from spanloop.foundation.errors import ConfigurationError


class FinishedStages:
    """The finished stages of an experiment with these ``settings``, in the JSON file ``path``.

    Raises:
        ConfigurationError: The file belongs to an experiment with other settings, or cannot be read.
    """

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        self._path = path
        self._document: dict[str, Any] = {"settings": settings, "stages": {}, "interrupted": {}}
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            stored_settings = stored["settings"]
            self._document["stages"] = dict(stored["stages"])
            self._document["interrupted"] = dict(stored.get("interrupted", {}))
        except FileNotFoundError:
            return
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigurationError(
                f"{path} does not list the finished stages: {error!r}.", next_step="Remove it to start over."
            ) from error
        if stored_settings != settings:
            changed = ", ".join(
                f"{key} was {stored_settings.get(key)!r}, now {settings.get(key)!r}"
                for key in sorted(stored_settings.keys() | settings.keys())
                if stored_settings.get(key) != settings.get(key)
            )
            raise ConfigurationError(
                f"The experiment in {path.parent.parent} was started with other settings: {changed}.",
                next_step="Give the same settings to continue, or another folder.",
            )

    @property
    def seconds(self) -> dict[str, float]:
        """The duration of each finished stage, in order."""
        return {name: float(stage["seconds"]) for name, stage in self._document["stages"].items()}

    @property
    def interrupted_s(self) -> float:
        """The total time of interrupted stages; stages that ended by kill -9 are not counted."""
        return float(sum(self._document["interrupted"].values()))

    def result(self, stage: str) -> dict[str, Any] | None:
        """Return the result of a finished stage; None when it has to run."""
        stored = self._document["stages"].get(stage)
        return None if stored is None else dict(stored["result"])

    def finish(self, stage: str, result: dict[str, Any], seconds: float) -> None:
        """Store a finished stage."""
        self._document["stages"][stage] = {"result": result, "seconds": round(seconds, 1)}
        self._write()

    def interrupt(self, stage: str, seconds: float) -> None:
        """Add the time of a stage that ended without a result."""
        previous_s = self._document["interrupted"].get(stage, 0.0)
        self._document["interrupted"][stage] = round(previous_s + seconds, 1)
        self._write()

    def _write(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        partial = self._path.with_name(f".{self._path.name}.partial")
        partial.write_text(json.dumps(self._document, indent=1), encoding="utf-8")
        partial.replace(self._path)
