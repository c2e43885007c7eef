"""Exit 0 when the role in this container is healthy: ``GET`` of ``SPANLOOP_HEALTH_URL`` answers 200.

Standard library only, because a container runs it every few seconds.
"""

import os
import sys
import urllib.error
import urllib.request
from typing import Final

URL_ENV: Final = "SPANLOOP_HEALTH_URL"
_TIMEOUT_S: Final = 3.0


def main() -> int:
    """Ask the role; return the exit status."""
    url = os.environ.get(URL_ENV, "")
    if not url.startswith(("http://", "https://")):
        sys.stderr.write(f"{URL_ENV} is {url!r}; expected the http address of the role's health route\n")
        return 1
    # A proxy of the environment must not answer for the role.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=_TIMEOUT_S) as response:
            return 0 if response.status == 200 else 1
    except (urllib.error.URLError, OSError) as error:
        sys.stderr.write(f"{url}: {error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
