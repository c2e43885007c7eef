"""A canary: a candidate that answers a share of the sessions, or a copy of a share of the calls (shadow).

Invariant: which version a session belongs to follows from the session, the salt and the session's first call alone. So
it never changes while the canary runs, also across restarts of the gateway.
"""

import json
import secrets
import time
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any, Self, cast

from spanloop.foundation.errors import ConfigurationError, SpanloopError
from spanloop.foundation.paths import DataDir

from ..chat.sessions import fraction_of
from ..engine.deployment import Deployment


class CanaryMode(StrEnum):
    """What the candidate gets."""

    SESSIONS = "sessions"
    """A share of the sessions: it answers all of their calls."""
    SHADOW = "shadow"
    """A copy of a share of the calls: the champion answers them, and the candidate's answers are stored."""


@dataclass(frozen=True, slots=True)
class Canary:
    """One canary."""

    id: str
    candidate: Deployment
    champion: str
    """``name@version`` of the version that it is compared with."""
    mode: CanaryMode
    share: float
    """Of the sessions or of the calls; above 0, at most 1."""
    salt: str
    started_s: float
    """Since when sessions belong to it, seconds since the epoch."""
    upstream: str = ""
    """URL of a server that serves the candidate; empty: the gateway starts one."""

    @classmethod
    def request(cls, body: dict[str, Any], champion: str) -> Self:
        """Validate the JSON of a start request.

        Raises:
            ConfigurationError: A field is missing or malformed.
        """
        share, upstream = _share(body.get("share")), body.get("upstream", "")
        if not isinstance(upstream, str) or (upstream and not upstream.startswith(("http://", "https://"))):
            raise ConfigurationError(f"'upstream' of a canary must be a URL, got {upstream!r}.")
        candidate = Deployment.parse(body)
        if candidate.label == champion:
            raise ConfigurationError(f"{champion} is served already; a canary needs another version.")
        mode = CanaryMode.SHADOW if body.get("is_shadow") is True else CanaryMode.SESSIONS
        identity = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(4)}"
        url = upstream.rstrip("/").removesuffix("/v1")
        return cls(identity, candidate, champion, mode, share, secrets.token_hex(8), time.time(), url)

    def started_now(self) -> Self:
        """Return the canary with the sessions that begin from now on."""
        return replace(self, started_s=time.time())

    def takes(self, session: str, first_seen_s: float) -> bool:
        """Return whether the candidate answers a session, or whether its answer to a call is wanted."""
        return first_seen_s >= self.started_s and fraction_of(session, self.salt) < self.share

    def document(self) -> dict[str, Any]:
        """Return the canary as JSON."""
        return asdict(self)

    @classmethod
    def of_document(cls, document: object) -> Self:
        """Return the canary of `document`.

        Raises:
            ConfigurationError: The candidate is malformed.
            TypeError: A field is missing or unknown.
            ValueError: A field has no meaning.
        """
        fields = dict(cast("dict[str, Any]", document))
        fields["candidate"] = Deployment.parse(fields.get("candidate"))
        fields["mode"] = CanaryMode(str(fields.get("mode")))
        return cls(**fields)


def _share(value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 1:
        return float(value)
    raise ConfigurationError(
        f"'share' of a canary must be above 0 and at most 1, got {value!r}.",
        next_step="0.1 gives the candidate a tenth of the sessions",
    )


class CanaryFile:
    """``gateway/canary.json``: the canary that runs; without it, none does."""

    def __init__(self, data_dir: DataDir) -> None:
        self._data_dir = data_dir
        self.path = data_dir.gateway / "canary.json"

    def read(self) -> Canary | None:
        """Return the canary that runs.

        Raises:
            ConfigurationError: The file is damaged.
        """
        try:
            return Canary.of_document(json.loads(self.path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, SpanloopError) as error:
            raise ConfigurationError(
                f"{self.path} is damaged: {error}", next_step="Remove it; then start the canary again."
            ) from error

    def write(self, canary: Canary) -> None:
        """Replace the file; DataDirectoryError: it cannot be written."""
        self._data_dir.write(self.path, json.dumps(canary.document(), indent=1) + "\n")

    def remove(self) -> None:
        """Remove the file."""
        self.path.unlink(missing_ok=True)
