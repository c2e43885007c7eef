"""``python -m spanloop.collector``: receive OTLP, store it on disk, write it to ClickHouse."""

import sys
from collections.abc import Sequence

from spanloop.foundation.keys.tls import tls_files
from spanloop.foundation.paths import DataDir
from spanloop.foundation.settings.roles import CollectorSettings
from spanloop.foundation.settings.sources import Process
from spanloop.foundation.telemetry.role_process import run_role

from .server import run


def _serve(process: Process[CollectorSettings]) -> None:
    configuration, settings = process.configuration, process.settings
    run(DataDir(process.data_dir), settings, limits=configuration.limits, tls=tls_files(settings, configuration.tls))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a collector and return the exit code."""
    return run_role(CollectorSettings, _serve, arguments)


if __name__ == "__main__":
    sys.exit(main())
