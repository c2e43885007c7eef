"""A real vLLM without ``--enable-scale-out``: the gateway sends ids by ``/v1/completions``, and says what it cannot."""

import os
import socket
import subprocess
import sys
from collections.abc import Generator
from typing import Any

import httpx
import pytest

from spanloop.demo.shop import SYSTEM, question
from spanloop.demo.shop import TOOLS as SHOP_TOOLS
from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.paths import DataDir
from spanloop.gateway.engine.serving_environment import find_serving_environment
from spanloop.runtime.service_checks import service_checks

from .support import Process, captures, wait_until
from .test_vllm import MAKE_MODEL

pytestmark = [pytest.mark.slow, pytest.mark.timeout(500)]
_START_S = 240.0
_PROMPT: list[Any] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question("apple", 3)}]


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """A vLLM that was started by hand."""
    try:
        serving = find_serving_environment()
    except ConfigurationError:
        pytest.skip("no serving environment: make setup")
    folder = tmp_path_factory.mktemp("upstream")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", MAKE_MODEL, str(folder / "toy")], check=True, env=environment)
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    options = ("--generation-config", "vllm", "--logprobs-mode", "processed_logprobs", "--enforce-eager")
    command = (str(serving.python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder / "toy"))
    environment |= {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_SERVER_DEV_MODE": "1", "HF_HUB_OFFLINE": "1"}
    library = serving.path / "lib" / "libiomp5.so"
    environment |= {"LD_PRELOAD": str(library)} if library.exists() else {}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, *options, "--served-model-name", "toy", "--port", url.rpartition(":")[2], "--block-size", "32"],
            env=environment, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        wait_until(lambda: process.poll() is not None or _is_up(url), timeout_s=_START_S)
        assert process.poll() is None, (folder / "log").read_text()[-4000:]
        yield url
    finally:
        process.terminate()
        process.wait(60)


def _is_up(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", timeout=5).status_code == 200
    except httpx.TransportError:
        return False


@pytest.fixture(scope="module")
def gateway(upstream: str, tmp_path_factory: pytest.TempPathFactory) -> Generator[Process]:
    process = Process(DataDir(tmp_path_factory.mktemp("gateway") / "data").open(), "--upstream", upstream)
    wait_until(lambda: process.health()["engine"] == "serving", timeout_s=60)
    yield process
    process.client.close()
    process.stop()


@pytest.mark.parametrize("stream", [False, True])
def test_turns_without_tools_begin_with_the_ids_before(gateway: Process, *, stream: bool) -> None:
    """At temperature 1 a toy model samples tokens that its tokenizer would not return for their text."""
    for number in range(4):
        messages, before = list(_PROMPT), list[int]()
        for turn in range(4):
            seed = 1000 * stream + 10 * number + turn
            text, identity = _answer(gateway, messages, stream=stream, temperature=1.0, seed=seed, max_tokens=24)
            capture = next(each for each in captures(gateway) if each.response_id == identity)
            assert capture.is_complete
            assert capture.prompt_token_ids[: len(before)] == before, (number, turn)
            assert len(capture.logprobs) == len(capture.response_token_ids)
            before = [*capture.prompt_token_ids, *capture.response_token_ids]
            messages += [{"role": "assistant", "content": text}, {"role": "user", "content": "And then?"}]


def _answer(gateway: Process, messages: list[Any], *, stream: bool, **fields: Any) -> tuple[str, str]:
    response: Any = gateway.client.chat.completions.create(model="toy", messages=messages, stream=stream, **fields)
    if not stream:
        return response.choices[0].message.content or "", response.id
    chunks = list(response)
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices), chunks[0].id


def test_requests_with_tools_and_a_schema_send_their_messages(gateway: Process) -> None:
    tools: list[Any] = [tool.definition() for tool in SHOP_TOOLS]
    fields: dict[str, Any] = {"model": "toy", "messages": _PROMPT, "max_tokens": 16, "temperature": 0.0}
    create: Any = gateway.client.chat.completions.create
    offered = create(**fields, tools=tools, tool_choice="none")
    schema: Any = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "boolean"}}}
    constrained = create(**fields, response_format=schema)
    assert constrained.choices[0].message.content in {"true", "false"}
    stored = {capture.response_id: capture for capture in captures(gateway)}
    assert stored[offered.id].is_complete
    assert stored[constrained.id].is_complete


def test_health_log_and_doctor_say_what_is_tokenised_again(gateway: Process) -> None:
    continuation = gateway.health()["continuation"]
    assert "by /v1/completions only, so requests with tools, structured output or logprobs send" in continuation
    assert continuation.partition(": ")[2] in gateway.log.read_text()
    (check,) = [each for each in service_checks(gateway.data_dir.path) if each.name == "gateway continuation"]
    assert (check.ok, check.needed) == (False, False)
    assert continuation in check.detail
    assert "--enable-scale-out" in check.fix
