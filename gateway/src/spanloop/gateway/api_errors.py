"""Errors in OpenAI's format, which every OpenAI client shows to its user."""

from collections.abc import Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Any

from starlette.responses import JSONResponse

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    413: "invalid_request_error",
    429: "rate_limit_error",
}


class ApiError(Exception):
    """Raised to answer a request with an error.

    Args:
        status: HTTP status.
        message: What failed, where, and the next step.
        code: OpenAI's machine-readable ``code``.
        param: The request's field that is invalid; None where it is not one field.
        retry_after_s: The ``Retry-After`` header, seconds; None omits it.
        headers: Further header fields of the response.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        retry_after_s: int | None = None,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.param = param
        self.retry_after_s = retry_after_s
        self.headers = headers

    def body(self) -> dict[str, Any]:
        """Return the JSON document of the response."""
        error_type = _TYPES.get(self.status, "server_error")
        return {"error": {"message": self.message, "type": error_type, "param": self.param, "code": self.code}}

    def response(self, **headers: str) -> JSONResponse:
        """Return the HTTP response, with ``headers`` added."""
        if self.retry_after_s is not None:
            headers["Retry-After"] = str(self.retry_after_s)
        return JSONResponse(self.body(), status_code=self.status, headers={**self.headers, **headers})


class DefectError(ApiError):
    """Answers a request that a defect of the gateway ended (500); the log has the traceback."""

    def __init__(self, error: Exception) -> None:
        super().__init__(
            HTTPStatus.INTERNAL_SERVER_ERROR,
            f"The gateway has a defect that ended this request: {type(error).__name__}. Its log has the traceback; "
            "report it with spanloop's version.",
            code="internal_error",
        )


class UnavailableError(ApiError):
    """Raised when no engine can answer now (503).

    Args:
        message: The reason and the next step.
        code: The gateway's state: ``no_deployment``, ``engine_restarting``, …
        retry_after_s: Time until a retry can succeed, seconds; None when waiting alone does not help.
    """

    def __init__(self, message: str, *, code: str, retry_after_s: int | None = None) -> None:
        super().__init__(HTTPStatus.SERVICE_UNAVAILABLE, message, code=code, retry_after_s=retry_after_s)
