"""``python -m spanloop.dashboard``: serve the web pages until SIGTERM."""

import logging
import sys
from collections.abc import Sequence

from spanloop.dashboard.service import serve
from spanloop.foundation.keys.tls import tls_files
from spanloop.foundation.paths import DataDir
from spanloop.foundation.settings.roles import DashboardSettings
from spanloop.foundation.settings.sources import Process
from spanloop.foundation.telemetry.role_process import run_role


def _serve(process: Process[DashboardSettings]) -> None:
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    configuration, settings = process.configuration, process.settings
    serve(
        DataDir(process.data_dir),
        host=settings.host,
        port=settings.port,
        tls=tls_files(settings, configuration.tls),
        configuration=configuration.dashboard,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the service and return the exit code: that of the error that ended it, else 0."""
    return run_role(DashboardSettings, _serve, arguments)


if __name__ == "__main__":
    sys.exit(main())
