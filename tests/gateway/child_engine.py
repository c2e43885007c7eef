"""A small server in place of vLLM as the gateway's child: its weights, and those of each adapter, are one number."""

import sys
from pathlib import Path
from typing import Final

import pytest

from spanloop.gateway.engine.serving_environment import SERVING_VENV_ENV

_SERVER: Final = """
import http.server, json, os, pathlib, socketserver, sys

HERE = pathlib.Path(__file__).parent

def option(name):
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else ""

def number(folder):
    return int(pathlib.Path(folder, "model.safetensors").read_text())

models = {"policy": number(option("--model"))}
if module := option("--lora-modules"):
    name, _, folder = module.partition("=")
    models[name] = number(folder)

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.reply({"data": [{"id": name} for name in models]})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}")
        with (HERE / "calls").open("a") as calls:
            print(os.getpid(), self.path, os.environ.get("CUDA_VISIBLE_DEVICES", ""), file=calls)
        if self.path == "/v1/load_lora_adapter" and "--enable-lora" in sys.argv:
            if (pathlib.Path(body["lora_path"]) / "refused").exists():
                return self.reply({"error": "no adapter"}, 400)
            models[body["lora_name"]] = number(body["lora_path"])
            self.reply({})
        elif self.path == "/v1/unload_lora_adapter":
            self.reply({}, 200 if models.pop(body["lora_name"], None) is not None else 404)
        elif self.path == "/v1/completions":
            self.reply({"choices": [{"prompt_logprobs": [None, {"5": {"logprob": -0.5 * models["policy"]}}]}]})
        elif self.path == "/collective_rpc":
            models["policy"] = number(body["kwargs"]["weights_path"])
            self.reply({})
        elif self.path != "/v1/chat/completions" or body["model"] not in models:
            self.reply({}, 404 if self.path.startswith("/v1/") else 200)
        else:
            choice = {"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}
            choice |= {"token_ids": [1000 + models[body["model"]]], "logprobs": {"content": [{"logprob": -0.5}]}}
            identity = "chatcmpl-" + os.urandom(8).hex()
            self.reply({"id": identity, "model": body["model"], "prompt_token_ids": [1, 5], "choices": [choice]})

    def reply(self, document, status=200):
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass

class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True

    def get_request(self):
        return super().get_request()[0], ("engine", 0)

Server(option("--uds"), Handler).serve_forever()
"""


def write_serving_environment(
    folder: Path, package: str, monkeypatch: pytest.MonkeyPatch, server: str = _SERVER
) -> Path:
    """A serving environment whose interpreter runs a server; the calls of the default one are in ``calls``."""
    (folder / "bin").mkdir(parents=True)
    (folder / "lib" / "python3.11" / "site-packages" / f"{package}.dist-info").mkdir(parents=True)
    (folder / "server.py").write_text(server)
    python = folder / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S {folder / "server.py"} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setenv(SERVING_VENV_ENV, str(folder))
    return folder
