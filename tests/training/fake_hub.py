"""A fake Hugging Face hub that serves the files of folders."""

import hashlib
import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@contextmanager
def fake_hub(
    folders: dict[str, Path], *, kind: str = "models", refuse: tuple[int, str] | None = None
) -> Generator[tuple[str, list[str]]]:
    """Serve ``folders`` by hub id, as repositories of ``kind``.

    ``refuse`` is a status and an error code for everything.

    Yields:
        The hub's URL, and the list of the files that were downloaded.
    """
    downloaded: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self._answer(with_body=False)

        def do_GET(self) -> None:
            self._answer(with_body=True)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            """Quiet."""

        def _answer(self, *, with_body: bool) -> None:
            path = self.path.partition("?")[0].strip("/")
            is_known = any(f"/{hub_id}/" in f"/{path}/" for hub_id in folders)
            status, code = refuse or (404, "EntryNotFound" if is_known else "RepoNotFound")
            body = None if refuse else _find(folders, kind, path)
            if with_body and body is not None and "/resolve/" in self.path:
                downloaded.append(self.path.rpartition("/")[2])
            self.send_response(status if body is None else 200)
            self.send_header("Content-Length", str(len(body or b"{}")))
            self.send_header("ETag", f'"{hashlib.sha256(body or b"").hexdigest()}"')
            self.send_header("X-Repo-Commit", COMMIT)
            if body is None and code:
                self.send_header("X-Error-Code", code)
            self.end_headers()
            if with_body:
                self.wfile.write(body or b"{}")

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", downloaded
        finally:
            server.shutdown()
            thread.join()


def _find(folders: dict[str, Path], kind: str, path: str) -> bytes | None:
    for hub_id, folder in folders.items():
        api = f"api/{kind}/{hub_id}"
        place = hub_id if kind == "models" else f"{kind}/{hub_id}"
        files = sorted(folder.iterdir())
        if path in {api, f"{api}/revision/main", f"{api}/revision/{COMMIT}"}:
            siblings = [{"rfilename": file.name} for file in files]
            return json.dumps({"_id": "1", "id": hub_id, "sha": COMMIT, "siblings": siblings}).encode()
        if path == f"{api}/tree/{COMMIT}":
            entries = [{"type": "file", "path": f.name, "size": f.stat().st_size, "oid": COMMIT} for f in files]
            return json.dumps(entries).encode()
        for file in files:
            if path == f"{place}/resolve/{COMMIT}/{file.name}":
                return file.read_bytes()
    return None
