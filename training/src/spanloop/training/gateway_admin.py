"""The gateway's admin API, as training talks to it: found by its run file, entered with its token."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple, Self

import httpx

from spanloop.semconv.environment import read_run_file
from spanloop.semconv.errors import ConfigurationError, NotRunningError

CONNECT_TIMEOUT_S: Final = 5.0
SHOWN_ANSWER_CHARACTERS: Final = 500


class GatewayAdmin(NamedTuple):
    """One running gateway."""

    url: str
    root: Path
    """Its data directory."""
    token: str

    @classmethod
    def find(cls, root: Path) -> Self:
        """The gateway that runs on the data directory ``root``.

        Raises:
            NotRunningError: None runs.
            ConfigurationError: Its admin token cannot be read.
        """
        running = read_run_file(root, "gateway")
        if running is None:
            raise not_running(root)
        file = root / "gateway" / "admin.token"
        try:
            token = file.read_text().strip()
        except OSError as error:
            raise ConfigurationError(
                f"The gateway's admin token cannot be read: {error}.",
                next_step=f"Run as the user who started the gateway, or restart it: spanloop up --data-dir {root}",
            ) from error
        return cls(running.url.rstrip("/"), root, token)

    def post(self, path: str, body: Mapping[str, object], *, timeout_s: float) -> httpx.Response:
        """The answer to ``POST /admin/<path>``, whatever its status but a refused token.

        Raises:
            NotRunningError: Nobody listens there any more.
            ConfigurationError: The token was refused.
            httpx.HTTPError: It took too long, or broke off.
        """
        timeout = httpx.Timeout(timeout_s, connect=CONNECT_TIMEOUT_S)
        try:
            # trust_env off: a proxy of the environment must not get between us and our own gateway.
            with httpx.Client(timeout=timeout, trust_env=False) as client:
                headers = {"Authorization": f"Bearer {self.token}"}
                answer = client.post(f"{self.url}/admin/{path}", json=dict(body), headers=headers)
        except httpx.ConnectError as error:
            raise not_running(self.root) from error
        if answer.status_code in {401, 403}:
            raise ConfigurationError(
                f"The gateway refused the admin token ({answer.status_code}): {said(answer)}",
                next_step="Restart the gateway; it writes a token that fits into gateway/admin.token.",
            )
        return answer


def said(answer: httpx.Response) -> str:
    """What the gateway answered, as far as a message has room for it."""
    return answer.text[:SHOWN_ANSWER_CHARACTERS]


def not_running(root: Path) -> NotRunningError:
    """Nobody serves on this data directory."""
    return NotRunningError(f"No gateway runs on the data directory {root}.", next_step=f"spanloop up --data-dir {root}")
