"""Tokens in the data directory, for processes of the user that the gateway belongs to.

Invariant: a token's file is readable by its owner only (0600). A token stays the same until its file is removed.
"""

import secrets
from typing import Final

from spanloop.foundation.paths import DataDir

_TOKEN_BYTES: Final = 32
METERED_PREFIX: Final = "spanloop-metered-"
"""Begins the keys of loops, whose calls the gateway counts up to a limit."""


def admin_token(data_dir: DataDir) -> str:
    """Return the token of the gateway's ``/admin``, in ``gateway/admin.token``; create it if it does not exist.

    Raises:
        DataDirectoryError: The file cannot be written.
    """
    return _token(data_dir, "admin")


def serve_token(data_dir: DataDir) -> str:
    """Return the token of the gateway's chat routes, in ``gateway/serve.token``; create it if it does not exist.

    With API keys, spanloop's own processes call the model with it: the task runner, jobs and the demo.

    Raises:
        DataDirectoryError: The file cannot be written.
    """
    return _token(data_dir, "serve")


def metered_key() -> str:
    """Return a new metered key, which the gateway does not know yet."""
    return METERED_PREFIX + secrets.token_urlsafe(_TOKEN_BYTES)


def _token(data_dir: DataDir, name: str) -> str:
    path = data_dir.gateway / f"{name}.token"
    if path.exists() and (token := path.read_text(encoding="ascii").strip()):
        return token
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    data_dir.write(path, token + "\n", mode=0o600)
    return token
