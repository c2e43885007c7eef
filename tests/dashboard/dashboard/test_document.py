"""The document of the pages: Streamlit's, whole and uncompressed, with styles and first scripts in its head."""

import re
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Mount
from starlette.testclient import TestClient
from streamlit.file_util import get_static_dir
from streamlit.web.server.starlette.starlette_gzip_middleware import SelectiveGZipMiddleware
from streamlit.web.server.starlette.starlette_static_routes import create_streamlit_static_handler

from spanloop.dashboard.front.document import PageDocument

STATIC = Path(get_static_dir())
NAVIGATION = {"accept": "text/html,application/xhtml+xml"}


@pytest.fixture
def client() -> TestClient:
    """A client of Streamlit's files behind its compression, as a page's navigation meets them."""
    files = create_streamlit_static_handler(str(STATIC), None)
    pages = Starlette(routes=[Mount("/", files)], middleware=[Middleware(SelectiveGZipMiddleware)])
    return TestClient(PageDocument(pages, STATIC))


@pytest.mark.parametrize("path", ["/", "/episodes", "/episodes?outcome=failure"])
def test_every_path_has_the_styles_and_the_first_scripts(client: TestClient, path: str) -> None:
    response = client.get(path, headers=NAVIGATION)
    head, _, body = response.text.partition("</head>")
    assert "[data-testid=stMainBlockContainer] h1" in head
    preloads = re.findall(r'rel="modulepreload" crossorigin href="\./([^"]+)"', head)
    assert len(preloads) == len(set(preloads))
    assert any("BidiComponent" in each for each in preloads)
    assert all((STATIC / each).is_file() for each in preloads)
    assert "window.__streamlit = {" in head
    assert '<div id="root">' in body
    assert "content-encoding" not in response.headers
    assert int(response.headers["content-length"]) == len(response.content)


def test_a_document_that_the_browser_has_is_sent_again(client: TestClient) -> None:
    etag = client.get("/", headers={"accept": "*/*"}).headers["etag"]
    response = client.get("/", headers=NAVIGATION | {"if-none-match": etag})
    assert response.status_code == 200
    assert "etag" not in response.headers
    assert "no-cache" in response.headers["cache-control"]


def test_other_requests_pass_as_they_are(client: TestClient) -> None:
    script = next((STATIC / "static" / "js").glob("BidiComponent.*.js"))
    response = client.get(f"/static/js/{script.name}", headers={"accept": "*/*"})
    assert response.content == script.read_bytes()
    assert "immutable" in response.headers["cache-control"]
    favicon = client.get("/favicon.png", headers=NAVIGATION)
    assert favicon.content == (STATIC / "favicon.png").read_bytes()
    assert client.post("/", headers=NAVIGATION).status_code == 405
