"""Log lines of all roles: text, or JSON with trace ids."""

import io
import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.telemetry.logs import add_log_fields, configure_logging, report_failure, traced
from spanloop.semconv.environment import LOG_FORMAT_ENV

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"


Configure = Callable[..., io.StringIO]


@pytest.fixture
def configure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Configure:
    """Configures the log as at the start of a process, without pytest's handlers; returns what is written."""
    monkeypatch.setattr(logging.getLogger(), "level", logging.WARNING)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.delenv(LOG_FORMAT_ENV, raising=False)

    def start(role: str, requested: str | None = None) -> io.StringIO:
        monkeypatch.setattr(logging.getLogger(), "handlers", [])
        stream = io.StringIO()
        configure_logging(role, tmp_path, requested=requested, stream=stream)
        return stream

    return start


def lines_of(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_is_text_unless_something_else_is_asked_for(configure: Configure) -> None:
    stream = configure("pipeline")
    logging.getLogger("pipeline").info("%d spans", 3)
    assert stream.getvalue().endswith(" INFO pipeline: 3 spans\n")


def test_the_option_wins_over_the_environment_and_that_over_the_configuration(
    configure: Configure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_json(requested: str | None = None) -> bool:
        stream = configure("x", requested)
        logging.getLogger("x").info("said")
        return stream.getvalue().startswith("{")

    assert not is_json()
    (tmp_path / "spanloop.toml").write_text('[logging]\nformat = "json"\n')
    assert is_json()
    monkeypatch.setenv(LOG_FORMAT_ENV, "text")
    assert not is_json()
    assert is_json("json")
    monkeypatch.setenv(LOG_FORMAT_ENV, "yaml")
    with pytest.raises(ConfigurationError, match="SPANLOOP_LOG_FORMAT is 'yaml', expected text or json"):
        is_json()


async def test_lines_of_a_request_have_its_trace_id_and_others_have_none(configure: Configure) -> None:
    stream = configure("gateway", "json")
    add_log_fields(job_id="job-1")

    async def answer(_: Request) -> Response:
        logging.getLogger("gateway").warning("müde %s", "Modelle")
        return Response()

    client = httpx.AsyncClient(
        transport=httpx.ASGITransport(traced(Starlette(routes=[Route("/", answer)]))), base_url="http://gateway"
    )
    async with client:
        for traceparent in (f"00-{TRACE_ID}-b7ad6b7169203331-01", "no traceparent"):
            await client.get("/", headers={"traceparent": traceparent})
    logged = [line for line in lines_of(stream) if line["logger"] == "gateway"]
    assert [line.get("trace_id") for line in logged] == [TRACE_ID, None]
    assert logged[0]["span_id"] == "b7ad6b7169203331"
    assert (logged[0]["message"], logged[0]["level"], logged[0]["role"], logged[0]["job_id"]) == (
        "müde Modelle", "WARNING", "gateway", "job-1",
    )  # fmt: skip
    assert logged[0]["time"].endswith("+00:00")


def test_the_error_that_ends_a_process_is_a_line_too(configure: Configure, capsys: pytest.CaptureFixture[str]) -> None:
    error = ConfigurationError("It cannot start.", next_step="Do this.")
    assert report_failure(error) == error.exit_code
    assert capsys.readouterr().err == f"{error}\n"
    stream = configure("collector", "json")
    report_failure(error)
    sys.excepthook(ValueError, ValueError("a bug"), None)
    ended, crashed = lines_of(stream)
    assert (ended["level"], ended["message"]) == ("CRITICAL", str(error))
    assert "ValueError: a bug" in crashed["exception"]
    assert capsys.readouterr().err == ""
