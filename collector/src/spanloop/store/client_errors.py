"""Translate clickhouse-connect's errors to a `StoreError` that names the operation and the next step."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Final

from clickhouse_connect.driver.exceptions import ClickHouseError
from clickhouse_connect.driver.exceptions import Error as DriverError

from spanloop.foundation.errors import LateInsertError, StoreError
from spanloop.semconv.environment import CLICKHOUSE_URL_ENV

_NEXT_STEPS: Final = {
    159: "The statement took longer than its time limit: ask for a shorter range of time, or raise the limit.",
    164: "This connection only reads; nothing was changed.",
    192: "Check user and password in the ClickHouse URL.",
    194: "Check user and password in the ClickHouse URL.",
    516: "Check user and password in the ClickHouse URL.",
    497: "Grant this right to the user, or use another user in the ClickHouse URL.",
    241: "Raise the memory cap of the embedded ClickHouse (--memory-cap-bytes), or read less at once.",
    243: "Free space on ClickHouse's disk; nothing was stored by this statement.",
    **dict.fromkeys(
        (279, 369), "Start the servers of the cluster that do not answer: spanloop doctor asks each of them."
    ),
    252: "Send larger blocks less often, or wait for merges to catch up.",
    396: "The result is larger than its limit: ask for fewer rows, or raise the limit.",
}


class UnreachableError(StoreError):
    """A server of ClickHouse does not answer."""


@contextmanager
def store_errors(doing: str) -> Generator[None]:
    """Convert clickhouse-connect's errors to a `StoreError` that names the operation and the next step."""
    try:
        yield
    except ClickHouseError as error:
        raise _store_error(doing, error) from error


def _store_error(doing: str, error: ClickHouseError) -> StoreError:
    code = error.code if isinstance(error, DriverError) else None
    causes = tuple(_causes(error))
    if code is None and causes and not any(isinstance(cause, OSError) for cause in causes):
        # The connection works, but the HTTP response ended early.
        return StoreError(
            f"The response to {doing} was cut off: {_root_cause(error)}.", next_step=CUT_OFF, is_transient=True
        )
    if code is None:
        return UnreachableError(
            f"ClickHouse is unreachable while {doing}: {_root_cause(error)}.",
            next_step=f"Check that it runs (spanloop status); for your own server, check {CLICKHOUSE_URL_ENV}.",
            is_transient=True,
        )
    if code == _THROWN:
        return LateInsertError(f"ClickHouse refused {doing}: it came after the time until which it was allowed.")
    text = " ".join(str(error).split())[:2000]
    is_disk_full = "No space left" in text
    return StoreError(
        f"ClickHouse rejected {doing} (code {code}): {text}",
        next_step=_NEXT_STEPS[243] if is_disk_full else _NEXT_STEPS.get(code, ""),
        is_transient=is_disk_full or code in _TRANSIENT_CODES or (code in _CUT_OFF_CODES and _OF_A_SERVER in text),
    )


_THROWN: Final = 395
"""The code of ``throwIf``."""
_TRANSIENT_CODES: Final = frozenset({159, 202, 209, 210, 243, 252, 279, 369})
"""Timeouts, too many queries or parts, a broken connection to another node, no copy that is up to date, a full disk."""
_CUT_OFF_CODES: Final = frozenset({32, 33})
"""Data ended early: in what a client sends, or in what another server of the cluster sends before it dies."""
_OF_A_SERVER: Final = "while receiving packet from"
CUT_OFF: Final = "Free space on ClickHouse's disk, which buffers responses of more than 16 MiB."


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the chain of causes of an error, outermost first."""
    cause = error.__cause__ or error.__context__
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


def _root_cause(error: BaseException) -> str:
    """Return the operating system's message, else the innermost error's text. Outer errors repeat the URL."""
    *_, innermost = (error, *_causes(error))
    text = innermost.strerror if isinstance(innermost, OSError) else None
    return text or " ".join(str(innermost).split())[:200] or type(innermost).__name__
