"""What a long run has done already, so that the same command goes on where it stopped.

The invariant: a stage is in the file when, and only when, its whole result is in the data directory. The file is
replaced atomically; a kill between the two costs one stage, which is then done again.
"""

import json
from pathlib import Path
from typing import Any

from spanloop.semconv.errors import ConfigurationError


class Ledger:
    """The finished stages of one run.

    Args:
        path: JSON file; made by the first stage.
        settings: What the run was asked for; a run that began otherwise is refused.

    Raises:
        ConfigurationError: The file belongs to a run with other settings, or is no such file.
    """

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        self._path = path
        self._document: dict[str, Any] = {"settings": settings, "stages": {}, "interrupted": {}}
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            before = found["settings"]
            self._document["stages"] = dict(found["stages"])
            self._document["interrupted"] = dict(found.get("interrupted", {}))
        except FileNotFoundError:
            return
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigurationError(
                f"{path} does not say what the demo has done: {error!r}.", next_step="Begin anew with --fresh."
            ) from error
        if before != settings:
            changed = ", ".join(
                f"{key} was {before.get(key)!r}, now {settings.get(key)!r}"
                for key in sorted(before.keys() | settings.keys())
                if before.get(key) != settings.get(key)
            )
            raise ConfigurationError(
                f"The demo in {path.parent.parent} was begun with other settings: {changed}.",
                next_step="Give the same settings to go on, another --data-dir, or --fresh to begin anew.",
            )

    @property
    def seconds(self) -> dict[str, float]:
        """How long each finished stage took, in order."""
        return {name: float(stage["seconds"]) for name, stage in self._document["stages"].items()}

    @property
    def interrupted_s(self) -> float:
        """How long attempts at a stage took that were broken off; one that was killed had no time to say it."""
        return float(sum(self._document["interrupted"].values()))

    def result(self, stage: str) -> dict[str, Any] | None:
        """What a finished stage left; None when it has to be done."""
        found = self._document["stages"].get(stage)
        return None if found is None else dict(found["result"])

    def finish(self, stage: str, result: dict[str, Any], seconds: float) -> None:
        """Write down that a stage is done."""
        self._document["stages"][stage] = {"result": result, "seconds": round(seconds, 1)}
        self._write()

    def interrupt(self, stage: str, seconds: float) -> None:
        """Write down how long an attempt took that ended without a result."""
        former = self._document["interrupted"].get(stage, 0.0)
        self._document["interrupted"][stage] = round(former + seconds, 1)
        self._write()

    def _write(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        partial = self._path.with_name(f".{self._path.name}.partial")
        partial.write_text(json.dumps(self._document, indent=1), encoding="utf-8")
        partial.replace(self._path)
