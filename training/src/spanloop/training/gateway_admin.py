"""Client of the gateway's admin API, which is found by its run file and authenticated by its admin token."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple, Self

import httpx

from spanloop.semconv.environment import read_run_file
from spanloop.semconv.errors import ConfigurationError, NotRunningError

CONNECT_TIMEOUT_S: Final = 5.0
SHOWN_RESPONSE_CHARACTERS: Final = 500


class GatewayAdmin(NamedTuple):
    """Client of one running gateway."""

    url: str
    root: Path
    """The gateway's data directory."""
    token: str

    @classmethod
    def find(cls, root: Path) -> Self:
        """Return the gateway that runs on the data directory ``root``.

        Raises:
            NotRunningError: No gateway runs.
            ConfigurationError: Its admin token cannot be read.
        """
        running = read_run_file(root, "gateway")
        if running is None:
            raise not_running(root)
        token_path = root / "gateway" / "admin.token"
        try:
            token = token_path.read_text().strip()
        except OSError as error:
            raise ConfigurationError(
                f"The gateway's admin token cannot be read: {error}.",
                next_step=f"Run as the user who started the gateway, or restart it: spanloop up --data-dir {root}",
            ) from error
        return cls(running.url.rstrip("/"), root, token)

    def post(self, path: str, body: Mapping[str, object], *, timeout_s: float) -> httpx.Response:
        """Return the response to ``POST /admin/<path>``, with any status except 401 and 403.

        Raises:
            NotRunningError: The gateway no longer listens.
            ConfigurationError: The gateway rejected the token.
            httpx.HTTPError: The request timed out or the connection broke.
        """
        timeout = httpx.Timeout(timeout_s, connect=CONNECT_TIMEOUT_S)
        try:
            # trust_env off: a proxy of the environment must not intercept requests to the local gateway.
            with httpx.Client(timeout=timeout, trust_env=False) as client:
                headers = {"Authorization": f"Bearer {self.token}"}
                response = client.post(f"{self.url}/admin/{path}", json=dict(body), headers=headers)
        except httpx.ConnectError as error:
            raise not_running(self.root) from error
        if response.status_code in {401, 403}:
            raise ConfigurationError(
                f"The gateway rejected the admin token ({response.status_code}): {response_text(response)}",
                next_step="Restart the gateway; it writes a valid token into gateway/admin.token.",
            )
        return response


def response_text(response: httpx.Response) -> str:
    """Return the response's text, shortened for an error message."""
    return response.text[:SHOWN_RESPONSE_CHARACTERS]


def not_running(root: Path) -> NotRunningError:
    """Return the error for a data directory without a running gateway."""
    return NotRunningError(f"No gateway runs on the data directory {root}.", next_step=f"spanloop up --data-dir {root}")
