"""``python -m spanloop.dashboard --data-dir D --port P --host H``: serve the dashboard until SIGTERM."""

import argparse
import logging
import sys
from collections.abc import Sequence

from spanloop.dashboard.service import serve
from spanloop.foundation.errors import SpanloopError
from spanloop.foundation.keys.tls import add_tls_options, tls_files
from spanloop.foundation.paths import DataDir
from spanloop.foundation.settings import load_configuration
from spanloop.foundation.telemetry.logs import add_log_option, configure_logging, report_failure
from spanloop.semconv.environment import DASHBOARD_PORT, default_data_dir


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the service and return the exit code: that of the error that ended it, else 0."""
    parser = argparse.ArgumentParser(prog="python -m spanloop.dashboard", description="Serve the spanloop dashboard.")
    parser.add_argument("--data-dir", default=str(default_data_dir()), help="the data directory (default: %(default)s)")
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on; beyond loopback with users (default: %(default)s)"
    )
    parser.add_argument("--port", type=int, default=DASHBOARD_PORT, help="port to listen on (default: %(default)s)")
    add_tls_options(parser)
    add_log_option(parser)
    options = parser.parse_args(arguments)
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    data_dir = DataDir(options.data_dir)
    try:
        configure_logging("dashboard", data_dir.path, requested=options.log_format)
        configuration = load_configuration(data_dir.path)
        serve(
            data_dir,
            host=options.host,
            port=options.port,
            tls=tls_files(options, configuration.tls),
            configuration=configuration.dashboard,
        )
    except SpanloopError as error:
        return report_failure(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
