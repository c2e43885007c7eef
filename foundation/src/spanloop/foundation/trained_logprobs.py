"""Log-probabilities that a trainer computed under the weights that it saved: a file beside them.

The text is fixed, so that the file holds nothing of a user, and ordinary: rounding changes the log-probabilities of
tokens that no text has by ten times as much. An engine that loaded these weights gives the same ones up to rounding.
"""

import json
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from .errors import ConfigurationError
from .paths import write_atomically

PROBE_TEXT: Final = (
    "Water boils at 100 degrees Celsius and freezes at 0 degrees. The capital of France is Paris, and the capital of "
    "Italy is Rome. One two three four five six seven eight nine ten."
)
PROBE_TOKENS: Final = 48
"""Tokens of the text that are compared, at most."""
TOLERANCE: Final = 0.1
"""Mean absolute difference, in nats, that rounding explains. Measured between transformers and vLLM: 0.039 for
SmolLM2-135M and 0.023 for a toy model in bfloat16, 0.000 in float32; 0.234 between the toy before and after SFT."""
TRAINED_LOGPROBS_FILE: Final = "trained_logprobs.json"


class TrainedLogprobs(NamedTuple):
    """Log-probabilities of the tokens of a text."""

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
