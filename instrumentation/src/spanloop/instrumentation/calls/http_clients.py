"""See model calls at the HTTP clients: httpx, httpx2, urllib3 (so requests and botocore), aiohttp and ``http.client``.

Invariant: a request passes unchanged, and an error here loses only the notice. gRPC and pycurl are not seen.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from wrapt import register_post_import_hook, wrap_function_wrapper

from spanloop.instrumentation.exception_guard import guard

CLIENTS: Final = ("httpx", "requests", "urllib3", "aiohttp", "http.client")
"""The HTTP clients whose requests are seen, as a user knows them."""
_MODEL_PATHS: Final = (
    "/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/openai/responses",
    "/v1/messages",
    "/v2/chat",
    ":generateContent",
    ":streamGenerateContent",
    "/converse",
    "/converse-stream",
)
_ANTHROPIC_PATH: Final = "/v1/messages"
_ANTHROPIC_HEADER: Final = "anthropic-version"
"""Anthropic's API requires it; other services have messages too."""

_DEFAULT_PORTS: Final = frozenset({None, 80, 443})


class ModelRequest(NamedTuple):
    """A request to a model's address."""

    host: str
    """With the port, where the URL has one."""
    path: str
    client: str
    """Its ``User-Agent``, else the name of the HTTP client."""


Record = Callable[[ModelRequest], None]
_Read = Callable[[Any, tuple[Any, ...], Mapping[str, Any]], ModelRequest | None]


def watch_http_clients(record: Record) -> None:
    """Let ``record`` have each request to a model's address, just before it is sent."""
    for package in ("httpx", "httpx2"):
        _watch(package, ("Client.send", "AsyncClient.send"), _of_httpx, record)
    _watch("urllib3.connectionpool", ("HTTPConnectionPool.urlopen",), _of_urllib3, record)
    _watch("aiohttp.client", ("ClientSession._request",), _of_aiohttp, record)
    _watch("http.client", ("HTTPConnection.request",), _of_http_client, record)


def _watch(module: str, names: tuple[str, ...], read: _Read, record: Record) -> None:
    @guard("model calls without a span are not noticed", None)
    def see(client: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> None:
        if request := read(client, args, named):
            record(request)

    def send(send: Callable[..., Any], client: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        see(client, args, named)
        return send(*args, **named)

    @guard("model calls without a span are not noticed", None)
    def wrap(loaded: Any) -> None:
        for name in names:
            wrap_function_wrapper(loaded, name, send)

    register_post_import_hook(wrap, module)


def _of_httpx(_: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> ModelRequest | None:
    request = _argument(args, named, 0, "request")
    if request.method != "POST" or not (path := request.url.path).endswith(_MODEL_PATHS):
        return None
    return _request(request.url.netloc.decode(), path, request.headers, "httpx")


def _of_urllib3(pool: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> ModelRequest | None:
    path = _path(args, named, "url")
    return (
        _request(_host(pool), path, _argument(args, named, 3, "headers") or pool.headers, "urllib3") if path else None
    )


def _of_http_client(connection: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> ModelRequest | None:
    path = _path(args, named, "url")
    return _request(_host(connection), path, _argument(args, named, 3, "headers"), "http.client") if path else None


def _of_aiohttp(session: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> ModelRequest | None:
    path = _path(args, named, "str_or_url")
    if not path:
        return None
    url, base = _argument(args, named, 1, "str_or_url"), getattr(session, "_base_url", None)
    host = urlsplit(str(url)).netloc or urlsplit(str(base)).netloc
    return _request(host, urlsplit(path).path, {**session.headers, **dict(named.get("headers") or {})}, "aiohttp")


def _path(args: tuple[Any, ...], named: Mapping[str, Any], url_name: str) -> str:
    """Return the URL of a POST to a model, without its query; empty for another request."""
    path = str(_argument(args, named, 1, url_name)).partition("?")[0]
    return path if path.endswith(_MODEL_PATHS) and _argument(args, named, 0, "method") in {"POST", "post"} else ""


def _argument(args: tuple[Any, ...], named: Mapping[str, Any], place: int, name: str) -> Any:
    return args[place] if len(args) > place else named.get(name)


def _host(connection: Any) -> str:
    return connection.host if connection.port in _DEFAULT_PORTS else f"{connection.host}:{connection.port}"


def _request(host: str, path: str, headers: Mapping[str, Any] | None, client: str) -> ModelRequest | None:
    if path.endswith(_ANTHROPIC_PATH) and not _header(headers, _ANTHROPIC_HEADER):
        return None
    return ModelRequest(host, path, _header(headers, "user-agent") or client)


def _header(headers: Mapping[str, Any] | None, name: str) -> str:
    """Return a header; a plain dict may spell its name in three ways, and botocore's values are bytes."""
    if not headers:
        return ""
    value = headers.get(name) or headers.get(name.title()) or headers.get(name.capitalize()) or ""
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)
