"""``python -m spanloop.collector``: receive OTLP, store it on disk, write it to ClickHouse."""

import argparse
import sys
from pathlib import Path

from spanloop.foundation.errors import SpanloopError
from spanloop.foundation.keys.tls import add_tls_options, tls_files
from spanloop.foundation.paths import DataDir
from spanloop.foundation.settings import load_configuration
from spanloop.foundation.telemetry.logs import add_log_option, configure_logging, report_failure
from spanloop.semconv.environment import default_data_dir

from .server import run
from .settings import Settings


def main(arguments: list[str] | None = None) -> int:
    """Run a collector and return the exit code."""
    defaults = Settings()
    parser = argparse.ArgumentParser(prog="python -m spanloop.collector", description=__doc__)
    parser.add_argument("--data-dir", type=Path, default=default_data_dir(), help="default: %(default)s")
    parser.add_argument("--port", type=int, default=defaults.port, help="0 selects a free port; default: %(default)s")
    parser.add_argument("--grpc-port", type=int, help="0 selects a free port; default: 4317 with --port 4318, else 0")
    parser.add_argument("--no-grpc", action="store_true", help="HTTP only")
    parser.add_argument("--host", default=defaults.host, help="beyond loopback with API keys; default: %(default)s")
    parser.add_argument("--allow-anonymous", action="store_true", help="listen beyond loopback without API keys")
    parser.add_argument(
        "--spool-limit-bytes", type=int, default=defaults.spool_limit_bytes,
        help="respond 503 when this many bytes wait for ClickHouse; default: %(default)s",
    )  # fmt: skip
    parser.add_argument(
        "--body-limit-bytes", type=int, default=defaults.body_limit_bytes,
        help="refuse larger requests with 413, counted after decompression; default: %(default)s",
    )  # fmt: skip
    parser.add_argument(
        "--memory-limit-bytes", type=int, default=defaults.memory_limit_bytes,
        help="respond 503 when this many bytes of bodies are in memory; default: %(default)s",
    )  # fmt: skip
    parser.add_argument(
        "--redact", type=Path, metavar="FILE",
        help="redaction rules; default: $SPANLOOP_REDACT, else redaction.toml in the data directory, if it exists",
    )  # fmt: skip
    add_log_option(parser)
    add_tls_options(parser)
    options = parser.parse_args(arguments)
    for name, port in (("--port", options.port), ("--grpc-port", options.grpc_port or 0)):
        if not 0 <= port < 65536:
            parser.error(f"argument {name}: {port} is not a port, expected 0 to 65535")
    try:
        data_dir = DataDir(options.data_dir)
        configure_logging("collector", data_dir.path, requested=options.log_format)
        configuration = load_configuration(data_dir.path)
        settings = Settings(
            host=options.host,
            allow_anonymous=options.allow_anonymous,
            port=options.port,
            grpc_port=options.grpc_port,
            has_grpc=not options.no_grpc,
            spool_limit_bytes=options.spool_limit_bytes,
            body_limit_bytes=options.body_limit_bytes,
            memory_limit_bytes=options.memory_limit_bytes,
            limits=configuration.limits,
            tls=tls_files(options, configuration.tls),
            redaction_file=options.redact,
        )
        run(data_dir, settings)
    except SpanloopError as error:
        return report_failure(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
