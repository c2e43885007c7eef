"""The gateway with a real vLLM on the tiny model: one start for the whole module."""
# safetensors and transformers are only partly typed.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from spanloop.demo.shop import SYSTEM, question
from spanloop.demo.shop import TOOLS as SHOP_TOOLS
from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.paths import DataDir
from spanloop.foundation.sampling import constraining
from spanloop.foundation.settings.roles import EngineSettings
from spanloop.gateway.capture.tokens import Capture
from spanloop.gateway.client.engine_client import EngineClient
from spanloop.gateway.engine.facts import EngineFacts
from spanloop.gateway.engine.serving_environment import find_serving_environment
from spanloop.gateway.engine.vllm_server import ChildEngine

from .support import Process, captures, descendants, is_alive, wait_until

MAKE_MODEL = (
    "import sys, pathlib; from spanloop.demo.tiny_model import build_tiny_model as b; b(pathlib.Path(sys.argv[1]))"
)
TOOLS: list[Any] = [tool.definition() for tool in SHOP_TOOLS]
QUESTION: list[Any] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question("apple", 3)}]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(500)]


def serving_is_missing() -> bool:
    try:
        find_serving_environment()
    except ConfigurationError:
        return True
    return False


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """v1 as built; v2 and v3 with other weights; `tied` with an output layer that is its input layer."""
    if serving_is_missing():
        pytest.skip("no serving environment: make setup")
    base = tmp_path_factory.mktemp("models")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", MAKE_MODEL, str(base / "v1")], check=True, env=environment)
    for number, version in enumerate(("v2", "v3"), start=2):
        shutil.copytree(base / "v1", base / version)
        generator = torch.Generator().manual_seed(number)
        weights = load_file(base / "v1" / "model.safetensors")
        moved = {name: w + 0.01 * torch.randn(w.shape, generator=generator) for name, w in weights.items()}
        save_file(moved, base / version / "model.safetensors", metadata={"format": "pt"})
    return {version: base / version for version in ("v1", "v2", "v3")}


@pytest.fixture(scope="module")
def running(models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Generator[Process]:
    process = Process(DataDir(tmp_path_factory.mktemp("served") / "data").open())
    try:
        assert process.deploy("v1", models["v1"])["method"] == "start"
        yield process
    finally:
        below = descendants(process.process.pid)
        process.stop()
        assert len(below) >= 2
        assert not [pid for pid in below if is_alive(pid)]


@pytest.fixture
def served(running: Process, models: dict[str, Path]) -> Process:
    """The running gateway with v1 deployed, whatever the test before left."""
    running.deploy("v1", models["v1"])
    return running


def capture_of(process: Process, response_id: str) -> Capture:
    (capture,) = [capture for capture in captures(process) if capture.response_id == response_id]
    return capture


def ask(process: Process, **fields: Any) -> Any:
    chosen: dict[str, Any] = {
        "model": "tiny",
        "messages": QUESTION,
        "tools": TOOLS,
        "max_tokens": 48,
        "temperature": 0.0,
    }
    return process.client.chat.completions.create(**{**chosen, **fields})


def test_captured_ids_decode_to_the_text_and_logprobs_are_the_models_own(
    served: Process, models: dict[str, Path]
) -> None:
    answer = ask(served, tools=None, temperature=0.7, seed=3)
    capture = capture_of(served, answer.id)
    tokenizer: Any = AutoTokenizer.from_pretrained(models["v1"])
    assert tokenizer.decode(capture.response_token_ids, skip_special_tokens=True) == answer.choices[0].message.content
    prompt = tokenizer.apply_chat_template(QUESTION, add_generation_prompt=True, return_dict=False)
    assert capture.prompt_token_ids == prompt
    assert len(capture.response_token_ids) == answer.usage.completion_tokens
    assert capture.sampling["temperature"] == "0.7"
    model: Any = AutoModelForCausalLM.from_pretrained(models["v1"], dtype=torch.float32)
    ids = torch.tensor([capture.prompt_token_ids + capture.response_token_ids])
    with torch.no_grad():
        logits = model(ids).logits[0, len(prompt) - 1 : -1] / 0.7
    expected = logits.log_softmax(-1).gather(1, ids[0, len(prompt) :, None])[:, 0]
    assert torch.allclose(torch.tensor(capture.logprobs), expected, atol=0.15)


def test_stream_and_whole_response_agree(served: Process) -> None:
    response = ask(served)
    chunks = list(ask(served, stream=True))
    whole, streamed = capture_of(served, response.id), capture_of(served, chunks[0].id)
    assert whole.is_complete
    assert streamed.is_complete
    assert whole.prompt_token_ids == streamed.prompt_token_ids
    assert whole.response_token_ids == streamed.response_token_ids
    assert whole.logprobs == pytest.approx(streamed.logprobs, abs=0.02)
    assert {chunk.model for chunk in chunks} == {response.model} == {"tiny@v1"}
    assert whole.finish_reason == streamed.finish_reason == response.choices[0].finish_reason


def test_tool_calls_parse_and_their_tokens_are_captured(served: Process) -> None:
    answers = [ask(served, temperature=1.0, seed=seed) for seed in range(12)]
    calls = [answer for answer in answers if answer.choices[0].message.tool_calls]
    assert calls, [answer.choices[0].message for answer in answers]
    for answer in calls:
        call = answer.choices[0].message.tool_calls[0]
        assert isinstance(json.loads(call.function.arguments), dict)
        capture = capture_of(served, answer.id)
        assert capture.finish_reason == answer.choices[0].finish_reason
        assert len(capture.response_token_ids) == len(capture.logprobs) == answer.usage.completion_tokens


def test_strict_tools_are_constrained_and_recorded(served: Process) -> None:
    tools = [{**tool, "function": {**tool["function"], "strict": True}} for tool in TOOLS]
    names = [tool["function"]["name"] for tool in TOOLS]
    free, strict = ask(served, temperature=1.0, seed=3), ask(served, tools=tools, temperature=1.0, seed=3)
    assert constraining(capture_of(served, free.id).sampling) == ()
    sampling = capture_of(served, strict.id).sampling
    assert (constraining(sampling), json.loads(sampling["strict_tools"])) == (("strict_tools",), names)
    assert httpx.get(f"{served.url}/v1/models", timeout=60).json()["data"][0]["max_model_len"] > 0


async def test_the_settings_of_a_real_engine_are_read_as_an_upstream_s(models: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "defaults"
    shutil.copytree(models["v1"], folder)
    generation = json.loads((folder / "generation_config.json").read_text())
    (folder / "generation_config.json").write_text(json.dumps({**generation, "top_k": 20, "temperature": 0.6}))
    options = ("--generation-config", "auto", "--override-generation-config", '{"top_p": 0.8}')
    async with EngineClient() as client:
        engine = ChildEngine(EngineSettings(vllm_args=shlex.join(options)), client, tmp_path / "vllm.log")
        try:
            await engine.start(str(folder))
            assert engine.facts.sampling.settings == {"top_k": "20", "temperature": "0.6", "top_p": "0.8"}
            assert await EngineFacts.of_upstream(engine.api, engine.served_name) == engine.facts
        finally:
            await engine.stop()


def test_hot_swap_under_load_drops_no_request_and_records_the_right_version(
    served: Process, models: dict[str, Path]
) -> None:
    stop = threading.Event()

    ids: list[str] = []

    def work(number: int) -> None:
        while not stop.is_set():
            if number % 2:
                ids.append(ask(served).id)
            else:
                ids.append([chunk.id for chunk in ask(served, stream=True)][-1])

    with ThreadPoolExecutor(4) as pool:
        workers = [pool.submit(work, number) for number in range(4)]
        try:
            for version in ("v2", "v3", "v1", "v2"):
                # Each worker may still be receiving one response of the previous version.
                enough = len(ids) + 2 * len(workers)
                wait_until(lambda enough=enough: len(ids) >= enough, timeout_s=120)  # type: ignore[misc]
                assert served.deploy(version, models[version])["method"] == "hot_swap"
        finally:
            stop.set()
        for worker in workers:
            worker.result()
    captures_by_id = {capture.response_id: capture for capture in captures(served)}
    assert len(set(ids)) == len(ids)
    answers: dict[str, dict[tuple[int, ...], list[float]]] = {}
    for response_id in ids:
        capture = captures_by_id[response_id]
        assert capture.is_complete
        answers.setdefault(capture.policy_version, {})[tuple(capture.response_token_ids)] = capture.logprobs
    assert set(answers) == {"tiny@v1", "tiny@v2", "tiny@v3"}
    first = {version: next(iter(of.values()))[0] for version, of in answers.items()}
    assert len(set(first.values())) == 3, "each version has its own first logprob"
    # Every capture of a version has that version's logprob: none was sampled by other weights.
    for response_id in ids:
        capture = captures_by_id[response_id]
        assert capture.logprobs[0] == pytest.approx(first[capture.policy_version], abs=0.004)


def test_swapped_weights_respond_like_freshly_loaded_ones(served: Process, models: dict[str, Path]) -> None:
    served.deploy("v3", models["v3"])
    capture = capture_of(served, ask(served).id)
    model: Any = AutoModelForCausalLM.from_pretrained(models["v3"], dtype=torch.float32)
    ids = torch.tensor([capture.prompt_token_ids + capture.response_token_ids])
    with torch.no_grad():
        logprobs = model(ids).logits[0, len(capture.prompt_token_ids) - 1 : -1].log_softmax(-1)
    expected = logprobs.gather(1, ids[0, len(capture.prompt_token_ids) :, None])[:, 0]
    assert torch.allclose(torch.tensor(capture.logprobs), expected, atol=0.15)


def test_a_disconnect_stores_an_incomplete_capture_and_leaves_a_working_engine(served: Process) -> None:
    # Without tools: the parser of tool calls holds text back, and the fifth chunk may be the last. Four choices with
    # twenty alternatives a token are more than sockets buffer, so the engine cannot finish before the client leaves.
    stream = ask(
        served, stream=True, tools=None, max_tokens=800, n=4, temperature=1.0, logprobs=True, top_logprobs=20,
        extra_body={"ignore_eos": True},
    )  # fmt: skip
    for count, _chunk in enumerate(stream):
        if count == 5:
            stream.close()
            break
    wait_until(lambda: not captures(served)[-1].is_complete)
    assert ask(served).choices[0].finish_reason


@pytest.mark.slow
def test_a_killed_vllm_restarts_automatically(served: Process) -> None:
    api_server = descendants(served.process.pid)[1]
    os.kill(api_server, signal.SIGKILL)
    wait_until(lambda: served.health()["engine"] == "restarting")
    body = {"messages": QUESTION}
    answer = httpx.post(f"{served.url}/v1/chat/completions", json=body, timeout=60)
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "engine_restarting"
    wait_until(lambda: served.health()["engine"] == "serving", timeout_s=400)
    assert served.health()["restarts"] == 1
    assert ask(served).model == "tiny@v1"


@pytest.mark.slow
def test_tied_embeddings_restart_the_engine_and_a_broken_model_rolls_back(
    served: Process, models: dict[str, Path], tmp_path: Path
) -> None:
    tied = tmp_path / "tied"
    shutil.copytree(models["v2"], tied)
    config = json.loads((tied / "config.json").read_text())
    (tied / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": True}))
    assert served.deploy("tied", tied)["method"] == "restart"
    assert ask(served).model == "tiny@tied"
    broken = tmp_path / "broken"
    shutil.copytree(models["v2"], broken)
    (broken / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(AssertionError, match=r"tiny@tied serves again"):
        served.deploy("broken", broken)
    assert ask(served).model == "tiny@tied"


@pytest.mark.slow
def test_a_prompt_of_ids_is_answered_as_its_messages_are(served: Process) -> None:
    for seed in range(20):
        tool_choice = ("auto", "none", "required")[seed % 3]
        fields: dict[str, Any] = {"temperature": 0.7, "seed": seed, "tool_choice": tool_choice, "logprobs": True}
        first = ask(served, **fields, extra_body={"return_token_ids": True})
        ids: list[int] = first.prompt_token_ids
        second = ask(served, **fields, extra_body={"kv_transfer_params": {"prompt_token_ids": ids}})
        one, other = first.choices[0].to_dict(), second.choices[0].to_dict()
        del one["token_ids"]
        for choice in (one, other):
            for call in choice["message"].get("tool_calls") or []:
                del call["id"]
        assert one == other


@pytest.mark.slow
def test_turns_at_temperature_one_begin_with_the_ids_before(served: Process) -> None:
    assert served.health()["continuation"] == "exact"
    for number in range(8):
        messages, before = list(QUESTION), list[int]()
        for turn in range(6):
            response = ask(
                served, messages=messages, temperature=1.0, seed=number * 10 + turn, max_tokens=32,
                extra_body={"return_token_ids": True},
            )  # fmt: skip
            assert response.prompt_token_ids[: len(before)] == before, (number, turn)
            choice = response.choices[0]
            before = [*response.prompt_token_ids, *choice.token_ids]
            calls = [call.to_dict() for call in choice.message.tool_calls or []]
            answer = {"role": "assistant", "content": choice.message.content or ""}
            messages.append({**answer, "tool_calls": calls} if calls else answer)
            results = [{"role": "tool", "tool_call_id": call["id"], "content": "3.50"} for call in calls]
            messages += results or [{"role": "user", "content": "And then?"}]


@pytest.mark.slow
def test_no_vllm_process_outlives_a_killed_gateway(models: dict[str, Path], data_dir: DataDir) -> None:
    process = Process(data_dir)
    process.deploy("v1", models["v1"])
    below = descendants(process.process.pid)
    process.process.kill()
    process.process.wait()
    wait_until(lambda: not [pid for pid in below if is_alive(pid)])
    assert len(below) >= 2


_CONNECT = """
import os, socket, sys
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
try:
    socket.socket(socket.AF_UNIX).connect(sys.argv[1])
except PermissionError:
    print("refused")
"""


def test_vllm_is_reached_by_the_gateway_alone(served: Process) -> None:
    below = [psutil.Process(pid) for pid in descendants(served.process.pid)]
    assert any("vllm" in " ".join(each.cmdline()) for each in below)
    ports = {each.laddr.port for one in below for each in one.net_connections("tcp") if each.status == "LISTEN"}
    for port in ports:  # torch's own, which do not speak HTTP
        with pytest.raises(httpx.TransportError):
            httpx.get(f"http://127.0.0.1:{port}/health", timeout=5)
    (socket,) = {argument for one in below for argument in one.cmdline() if argument.endswith("/vllm.sock")}
    assert Path(socket).parent.stat().st_mode & 0o777 == 0o700
    if os.geteuid() == 0:
        command = [sys.executable, "-c", _CONNECT, socket]
        tried = subprocess.run(command, capture_output=True, text=True, check=False)
        assert tried.stdout == "refused\n", tried.stderr
