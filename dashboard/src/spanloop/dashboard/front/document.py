"""The HTML document of the pages: Streamlit's, with styles, first scripts and the server's address in its head.

Invariant: what is drawn does not move when styles arrive, because they are part of the document. A click meets what
the person saw.
"""

import re
from pathlib import Path
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from spanloop.dashboard.frontend import asset

_FIRST_SCRIPTS: Final = ("BidiComponent",)
"""Scripts of Streamlit that every page needs, and that Streamlit asks for only when it draws the first element."""
_SERVER: Final = """<script>
window.__streamlit = {
  BACKEND_BASE_URL: new URL("./", location.href).href,
  HOST_CONFIG: { allowedOrigins: [location.origin], useExternalAuthToken: false, enableCustomParentMessages: false },
};
</script>
"""
"""Without it the browser asks the server for this first, also below the path of the page, and connects afterwards."""
_IMPORT: Final = re.compile(r'(?:\bfrom|\bimport)\s*"\./([\w.-]+\.js)"')
_CONDITIONS: Final = frozenset({b"accept-encoding", b"if-none-match", b"if-modified-since"})
"""Headers of the request after which the document would arrive compressed, or not at all."""
_REPLACED: Final = frozenset({b"content-length", b"etag", b"last-modified"})


class PageDocument:
    """The pages, whose HTML document gets what belongs into its head.

    Args:
        pages: The application of the pages.
        static: The folder of Streamlit's files, with ``index.html``.
    """

    def __init__(self, pages: ASGIApp, static: Path) -> None:
        self._pages = pages
        self._head = f"{_SERVER}{_preloads(static)}<style>\n{asset('page.css')}</style>\n".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; a navigation's document gets the head."""
        if scope["type"] != "http" or not _is_navigation(scope):
            await self._pages(scope, receive, send)
            return
        headers = [(name, value) for name, value in scope["headers"] if name.lower() not in _CONDITIONS]
        start: Message | None = None
        body = b""

        async def send_with_head(message: Message) -> None:
            nonlocal start, body
            if message["type"] == "http.response.start" and _is_document(message):
                start = message
                return
            if start is None or message["type"] != "http.response.body":
                await send(message)
                return
            body += message.get("body", b"")
            if not message.get("more_body", False):
                content = body.replace(b"</head>", self._head + b"</head>", 1)
                others = [(name, value) for name, value in start["headers"] if name.lower() not in _REPLACED]
                await send({**start, "headers": [*others, (b"content-length", str(len(content)).encode())]})
                await send({"type": "http.response.body", "body": content})

        await self._pages({**scope, "headers": headers}, receive, send_with_head)


def _is_navigation(scope: Scope) -> bool:
    accepted = [value for name, value in scope["headers"] if name.lower() == b"accept"]
    return scope["method"] == "GET" and any(b"text/html" in value for value in accepted)


def _is_document(message: Message) -> bool:
    types = [value for name, value in message.get("headers", ()) if name.lower() == b"content-type"]
    return message["status"] == 200 and any(value.startswith(b"text/html") for value in types)


def _preloads(static: Path) -> str:
    """Return elements that load scripts, and what these import, while the browser still reads Streamlit's own."""
    folder = static / "static" / "js"
    named = (static / "index.html").read_text("utf-8")
    scripts = [path.name for first in _FIRST_SCRIPTS for path in sorted(folder.glob(f"{first}.*.js"))]
    names: list[str] = []
    while scripts:
        name = scripts.pop()
        if name not in names and name not in named:
            names.append(name)
            scripts += _IMPORT.findall((folder / name).read_text("utf-8"))
    return "".join(f'<link rel="modulepreload" crossorigin href="./static/js/{name}">\n' for name in names)
