"""HTTP to the gateway's own vLLM over a Unix socket.

vLLM checks its API key on some paths only, and the paths that load weights are not among them. Invariant: the socket
lies in a folder that only the gateway's user can enter, so no other user and no host of the network reaches vLLM.
"""

import secrets
import shutil
from typing import Final

from spanloop.foundation.errors import ConfigurationError

from ..client.engine_client import SOCKET_DOMAIN, socket_path

_MAX_PATH_BYTES: Final = 107
"""Of a socket's path, unix(7)."""


class EngineSocket:
    """A new folder for one vLLM's socket, 0700.

    Raises:
        ConfigurationError: The path of the folder for temporary files is too long for a socket.
        OSError: The folder cannot be made.
    """

    def __init__(self) -> None:
        identity = secrets.token_hex(8)
        self.path: Final = socket_path(identity)
        if len(bytes(self.path)) > _MAX_PATH_BYTES:
            raise ConfigurationError(
                f"The path of vLLM's socket, {self.path}, has more than {_MAX_PATH_BYTES} bytes.",
                next_step="Set TMPDIR to a folder with a shorter path, such as /tmp.",
            )
        self.path.parent.mkdir(mode=0o700)
        self.url: Final = f"http://{identity}{SOCKET_DOMAIN}"
        """The URL under which an `EngineClient` reaches the socket."""

    def remove(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.path.parent, ignore_errors=True)
