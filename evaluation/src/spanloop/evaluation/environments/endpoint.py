"""The protocol of environments over HTTP: agents act in the sessions of a pool.

``POST /v1/reset``, ``/v1/step``, ``/v1/close`` and ``GET /healthz``; docs/reference/environments.md describes them.
Invariant: a session's key opens that session alone. Without the endpoint's own key nobody starts a session.
"""

import hmac
import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Final, TypeVar, cast

import anyio
import anyio.to_thread
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.telemetry.listening import listen
from spanloop.foundation.telemetry.threaded_server import serving_in_thread

from .base import Action, EnvironmentFailedError
from .messages import json_object, tool_json
from .outcome import Outcome
from .pool import EnvironmentPool
from .session import Session

R = TypeVar("R")
MOST_BODY_BYTES: Final = 1 << 20
_STOP_S: Final = 1
_BEARER: Final = "Bearer "


class Endpoint:
    """Serves a pool.

    Args:
        pool: The environments.
        key: Starts sessions; empty for an endpoint whose sessions the task runner starts.
        parallel: Most calls that wait for an environment at the same time.
    """

    def __init__(self, pool: EnvironmentPool, *, key: str = "", parallel: int = 40) -> None:
        self._pool: Final = pool
        self._key: Final = key
        self._parallel: Final = parallel
        self._limiter: anyio.CapacityLimiter | None = None

    def app(self) -> Starlette:
        """Return the ASGI app."""
        return Starlette(
            routes=[
                Route("/healthz", self._health),
                Route("/v1/reset", self._reset, methods=["POST"]),
                Route("/v1/step", self._step, methods=["POST"]),
                Route("/v1/close", self._close, methods=["POST"]),
            ],
            exception_handlers={HTTPException: _error_response},
        )

    async def _health(self, _: Request) -> Response:
        return JSONResponse({"status": "ok", "sessions": self._pool.sessions})

    async def _reset(self, request: Request) -> Response:
        body = await _body(request)
        if "session" in body:
            session = self._session(body)
            if session.outcome.steps:
                raise HTTPException(409, "The episode has begun; an attempt has one. Next: start another attempt.")
        else:
            self._check_key(request)
            task, seed = body.get("task", {}), body.get("seed", 0)
            if not isinstance(task, dict) or isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
                raise HTTPException(400, "Expected task: an object, and seed: an integer of at least 0.")
            session = await self._in_thread(lambda: self._pool.open(cast("dict[str, Any]", task), seed))
            if session.outcome.failure:
                await self._in_thread(lambda: self._pool.release(session))
        if session.outcome.failure:
            raise HTTPException(502, session.outcome.failure)
        start = session.start
        return JSONResponse(
            {
                "session": session.key,
                "observation": start.observation,
                "tools": [tool_json(tool) for tool in start.tools],
                "takes_messages": start.takes_messages,
            }
        )

    async def _step(self, request: Request) -> Response:
        body = await _body(request)
        session, action = self._session(body), _action(body)
        try:
            result = await self._in_thread(lambda: session.step(action))
        except EnvironmentFailedError as error:
            raise HTTPException(502, str(error)) from error
        return JSONResponse(result._asdict())

    async def _close(self, request: Request) -> Response:
        session = self._session(await _body(request))
        if self._key:
            await self._in_thread(lambda: self._pool.release(session))
        return JSONResponse(_outcome_json(session.outcome))

    def _session(self, body: dict[str, Any]) -> Session:
        key = body.get("session")
        session = self._pool.find(key) if isinstance(key, str) else None
        if session is None:
            raise HTTPException(404, "There is no such session: it was closed, or its attempt has ended.")
        return session

    def _check_key(self, request: Request) -> None:
        given = request.headers.get("authorization", "")
        if not self._key or not hmac.compare_digest(given.encode(), f"{_BEARER}{self._key}".encode()):
            raise HTTPException(401, "Starting a session needs the environment's key (Authorization: Bearer KEY).")

    async def _in_thread(self, function: Callable[[], R]) -> R:
        self._limiter = self._limiter or anyio.CapacityLimiter(self._parallel)
        try:
            return await anyio.to_thread.run_sync(function, limiter=self._limiter)
        except ConfigurationError as error:
            raise HTTPException(503, " ".join(str(error).split())) from error


@contextmanager
def serving(endpoint: Endpoint, host: str = "127.0.0.1", port: int = 0) -> Generator[str]:
    """Serve while the block runs; yield the URL.

    Raises:
        PortInUseError: Another process listens on the port.
    """
    config = uvicorn.Config(
        endpoint.app(),
        lifespan="off",
        proxy_headers=False,
        access_log=False,
        log_config=None,
        timeout_graceful_shutdown=_STOP_S,
    )
    with (
        listen("environment endpoint", host, port, "--port") as listener,
        serving_in_thread(uvicorn.Server(config), listener, name="environments"),
    ):
        yield f"http://{host}:{listener.getsockname()[1]}"


async def _body(request: Request) -> dict[str, Any]:
    """Return the JSON object of a request's body, which is read only as far as the limit."""
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > MOST_BODY_BYTES:
            raise HTTPException(413, f"The body has more than {MOST_BODY_BYTES:,} bytes.")
    try:
        body: object = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, f"The body is not JSON: {error}.") from error
    if not isinstance(body, dict):
        raise HTTPException(400, "Expected a JSON object.")
    return cast("dict[str, Any]", body)


def _action(body: dict[str, Any]) -> Action:
    tool, message = body.get("tool", ""), body.get("message", "")
    arguments = json_object(body.get("arguments") or {})
    if not isinstance(tool, str) or not isinstance(message, str) or arguments is None:
        raise HTTPException(400, "Expected tool: text and arguments: an object, or message: text.")
    return Action(tool, arguments, message)


def _outcome_json(outcome: Outcome) -> dict[str, Any]:
    return {**outcome._asdict(), "components": dict(outcome.components)}


async def _error_response(_: Request, error: Exception) -> Response:
    """The handler is registered for this class alone."""
    failed = cast("HTTPException", error)
    return JSONResponse({"error": {"message": failed.detail}}, status_code=failed.status_code)
