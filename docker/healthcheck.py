"""Exit 0 when the role in this container is healthy: ``GET`` of ``SPANLOOP_HEALTH_URL`` answers 200.

A container runs it every few seconds, so it imports little of the standard library and nothing else.
"""

import os
import socket
import sys
from typing import Final
from urllib.parse import urlsplit

URL_ENV: Final = "SPANLOOP_HEALTH_URL"
_TIMEOUT_S: Final = 10.0


def main() -> int:
    """Ask the role; return the exit status."""
    text = os.environ.get(URL_ENV, "")
    url = urlsplit(text)
    if url.scheme != "http" or not url.hostname:
        sys.stderr.write(f"{URL_ENV} is {text!r}; expected the http address of the role's health route\n")
        return 1
    request = f"GET {url.path or '/'} HTTP/1.0\r\nHost: {url.netloc}\r\n\r\n"
    try:
        with socket.create_connection((url.hostname, url.port or 80), timeout=_TIMEOUT_S) as connection:
            connection.sendall(request.encode("ascii"))
            with connection.makefile("rb") as response:
                status_line = response.readline().split()
    except OSError as error:
        sys.stderr.write(f"{text}: {error}\n")
        return 1
    return 0 if status_line[1:2] == [b"200"] else 1


if __name__ == "__main__":
    sys.exit(main())
