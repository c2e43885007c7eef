"""Log-probabilities that a trainer computed under the weights that it saved: a file beside them.

The prompt is fixed and holds nothing of a user. An engine that loaded these weights gives the same log-probabilities up
to rounding (:mod:`.logprob_agreement`).
"""

import json
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from .errors import ConfigurationError
from .paths import write_atomically

PROBE_TOKEN_IDS: Final = tuple(range(1, 25))
"""The prompt; each vocabulary has these ids."""
TRAINED_LOGPROBS_FILE: Final = "trained_logprobs.json"


class TrainedLogprobs(NamedTuple):
    """Log-probabilities of a prompt."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    """Of each token but the first, in nats."""

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """Read the file of a model folder; None without one.

        Raises:
            ConfigurationError: It is damaged.
        """
        path = folder / TRAINED_LOGPROBS_FILE
        try:
            document: dict[str, Any] = json.loads(path.read_bytes())
            token_ids, logprobs = tuple(map(int, document["token_ids"])), tuple(map(float, document["logprobs"]))
        except FileNotFoundError:
            return None
        except (ValueError, LookupError, TypeError) as error:
            raise _damaged(path, repr(error)) from error
        if len(logprobs) != len(token_ids) - 1:
            raise _damaged(
                path, f"{len(token_ids)} token ids and {len(logprobs)} log-probabilities, expected one fewer"
            )
        return cls(token_ids, logprobs)

    def write(self, folder: Path) -> None:
        """Write the file of a model folder atomically."""
        write_atomically(folder / TRAINED_LOGPROBS_FILE, json.dumps(self._asdict()), mode=0o644)


def _damaged(path: Path, reason: str) -> ConfigurationError:
    return ConfigurationError(f"{path} is damaged: {reason}.", next_step="Restore it from a backup, or remove it.")
