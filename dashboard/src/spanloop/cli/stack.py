"""A whole spanloop as a context manager: ClickHouse first, then the services around it."""

import os
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from spanloop.semconv.environment import CLICKHOUSE_URL_ENV

from .services import Ports, check_ports, services
from .supervisor import Say, Supervisor, only_one_up

if TYPE_CHECKING:
    from spanloop.store import DataDir


@contextmanager
def running_stack(
    data_dir: "DataDir", ports: Ports, say: Say, *, dashboard: bool = True, pipeline: bool = True
) -> Generator[Supervisor]:
    """Everything that makes a spanloop, started in order and stopped in the opposite one.

    Args:
        data_dir: An opened data directory; locked meanwhile.
        ports: Where to listen.
        say: Receives progress lines.
        dashboard: Whether to start the web pages (when their extra is installed).
        pipeline: Whether spans are converted as they come.

    Raises:
        AlreadyRunningError: The data directory is in use.
        PortInUseError: A port is taken.
        ServiceError: A service could not start.
    """
    from spanloop.store import EmbeddedClickHouse, connect

    wanted = services(ports, dashboard=dashboard, pipeline=pipeline)
    with ExitStack() as cleanup:
        cleanup.enter_context(only_one_up(data_dir))
        check_ports(wanted)
        if not os.environ.get(CLICKHOUSE_URL_ENV):
            say("starting ClickHouse")
            cleanup.enter_context(EmbeddedClickHouse(data_dir))
        with connect(data_dir):
            say("the store is ready")
        supervisor = Supervisor(data_dir, wanted, say)
        cleanup.callback(supervisor.stop)
        say(f"starting {', '.join(service.name for service in wanted)}")
        supervisor.start()
        yield supervisor
