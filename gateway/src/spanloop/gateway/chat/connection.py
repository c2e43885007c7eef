"""The connection to the client of one request: its status, and the messages of ASGI.

Invariant: nothing is sent before the first part of an answer is known, so an error of the engine has its own status.
"""

from collections.abc import Callable, Mapping
from http import HTTPStatus

from starlette.types import Send

from ..api_errors import ApiError, UnavailableError
from ..client.engine_client import EngineResponse
from .answer_format import AnswerFormat

_RELAYED_HEADERS = ("retry-after",)


class ClientConnection:
    """The connection to the client.

    Args:
        send: Sends messages, as in ASGI.
        answer_format: The format of answers and errors.
        before_answer: Called before the first part of an answer with the status 200.
    """

    def __init__(self, send: Send, answer_format: AnswerFormat, before_answer: Callable[[], None]) -> None:
        self._send = send
        self._format = answer_format
        self._before_answer = before_answer
        self.has_started = False
        self.is_streaming = False
        """Whether a stream was begun and not ended."""
        self.headers: dict[str, str] = {}
        """Further header fields of the response."""
        self.status = 0
        self.error_code = ""
        """Of the error event that ended a stream."""

    async def send_whole(self, body: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        """Send a whole response of JSON."""
        if status == HTTPStatus.OK:
            self._before_answer()
        self.has_started, self.status = True, status
        fields = {"content-type": "application/json", "content-length": str(len(body)), **(headers or {})}
        await self._start(status, fields)
        await self._send({"type": "http.response.body", "body": body, "more_body": False})

    async def send_part(self, data: bytes, *, is_last: bool = False) -> None:
        """Send a part of a stream."""
        if not self.has_started:
            self._before_answer()
            self.has_started, self.status = True, 200
            await self._start(200, {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"})
        self.is_streaming = not is_last
        await self._send({"type": "http.response.body", "body": data, "more_body": not is_last})

    async def _start(self, status: int, headers: Mapping[str, str]) -> None:
        fields = {**headers, **self.headers}
        raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in fields.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": raw})

    async def end_with_error(self, message: str, code: str) -> None:
        """End a started stream with an error event, which clients raise."""
        self.error_code = code
        await self.send_part(self._format.error_event(UnavailableError(message, code=code)), is_last=True)

    async def send_error(self, error: ApiError) -> None:
        """Send an error instead of an answer."""
        headers = {} if error.retry_after_s is None else {"retry-after": str(error.retry_after_s)}
        await self.send_whole(self._format.error_body(error), error.status, headers)

    async def relay_error(self, response: EngineResponse, content: bytes) -> None:
        """Send the engine's error on, with the given content."""
        headers = {name: response.headers[name] for name in _RELAYED_HEADERS if name in response.headers}
        await self.send_whole(self._format.engine_error(content, response.status_code), response.status_code, headers)
