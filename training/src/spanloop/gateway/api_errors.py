"""Errors in OpenAI's format, so that every OpenAI client shows our sentence."""

from http import HTTPStatus
from typing import Any

from starlette.responses import JSONResponse

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    413: "invalid_request_error",
}


class AnswerError(Exception):
    """A request that is answered with an error.

    Args:
        status: HTTP status.
        message: For the caller: what, where, next step.
        code: OpenAI's machine-readable ``code``.
        retry_after_s: Sent as ``Retry-After`` when not None.
    """

    def __init__(self, status: int, message: str, *, code: str | None = None, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.retry_after_s = retry_after_s

    def body(self) -> dict[str, Any]:
        """The document that the caller gets."""
        kind = _TYPES.get(self.status, "server_error")
        return {"error": {"message": self.message, "type": kind, "param": None, "code": self.code}}

    def response(self, **headers: str) -> JSONResponse:
        """Return the HTTP response, with ``headers`` added."""
        if self.retry_after_s is not None:
            headers["Retry-After"] = str(self.retry_after_s)
        return JSONResponse(self.body(), status_code=self.status, headers=headers)


class UnavailableError(AnswerError):
    """No engine can answer now (503).

    Args:
        message: Why, and the next step.
        code: Which of our states: ``no_deployment``, ``engine_restarting``, …
        retry_after_s: When it is worth trying again; None when waiting alone does not help.
    """

    def __init__(self, message: str, *, code: str, retry_after_s: int | None = None) -> None:
        super().__init__(HTTPStatus.SERVICE_UNAVAILABLE, message, code=code, retry_after_s=retry_after_s)
