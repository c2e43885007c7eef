"""``python -m spanloop.mcp_server``: answer an assistant's questions until SIGTERM, or until standard input ends."""

import logging
import sys
from collections.abc import Sequence

from spanloop.foundation.keys.tls import tls_files
from spanloop.foundation.paths import DataDir
from spanloop.foundation.settings.roles import McpSettings
from spanloop.foundation.settings.sources import Process
from spanloop.foundation.telemetry.role_process import run_role

from .service import run


def _serve(process: Process[McpSettings]) -> None:
    for name in ("uvicorn.error", "mcp"):
        logging.getLogger(name).setLevel(logging.WARNING)
    configuration, settings = process.configuration, process.settings
    run(DataDir(process.data_dir), settings, limits=configuration.limits, tls=tls_files(settings, configuration.tls))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the server and return the exit code: that of the error that ended it, else 0."""
    return run_role(McpSettings, _serve, arguments)


if __name__ == "__main__":
    sys.exit(main())
