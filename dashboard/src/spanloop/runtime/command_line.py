"""Write ``spanloop`` command lines for messages."""

import shlex
from typing import TYPE_CHECKING

from spanloop.semconv.environment import default_data_dir

if TYPE_CHECKING:
    from spanloop.foundation.paths import DataDir


def command_line(arguments: str, directory: "DataDir") -> str:
    """Return the ``spanloop`` command with ``arguments`` for this data directory, quoted for a shell."""
    option = "" if directory.path == default_data_dir() else f" --data-dir {shlex.quote(str(directory.path))}"
    return f"spanloop {arguments}{option}"
