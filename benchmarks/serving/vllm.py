"""The gateway in front of vLLM: throughput beside the engine alone, and turns whose history is tokenised again."""

import asyncio
import contextlib
import subprocess
import tempfile
import time
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import mean, stdev
from typing import Any, Final, NamedTuple

import httpx

from spanloop.demo.shop import SYSTEM, TOOLS, question
from spanloop.foundation.settings.roles import EngineSettings
from spanloop.gateway.engine.serving_environment import find_serving_environment, launch_command

from .load import run_load

_START_TIMEOUT_S: Final = 400.0
_ITEMS: Final = ("apple", "pear", "mug", "lamp")
_BLOCK: Final = 16
_AT_ONCE: Final = 8
"""Conversations."""
_T_OF_FIVE: Final = 2.776
"""95 % quantile of Student's t for five rounds."""


class Loss(NamedTuple):
    """Throughput that the gateway costs, as shares of the engine's alone."""

    mean: float
    half_width: float
    """Of the 95 % interval over the rounds."""


@contextlib.contextmanager
def vllm(folder: Path, port: int) -> Generator[int]:
    """Serve a model folder on the loopback; yield the process id."""
    launch = launch_command(find_serving_environment(), str(folder), Path("unused"), EngineSettings())
    command = list(launch.command)
    at = command.index("--uds")
    command[at : at + 2] = ["--host", "127.0.0.1", "--port", str(port)]
    with (
        tempfile.TemporaryFile() as log,
        subprocess.Popen(command, env=dict(launch.environment), stdout=log, stderr=log) as process,
    ):
        try:
            _await_health(f"http://127.0.0.1:{port}/health", process)
            yield process.pid
        finally:
            process.terminate()


def _await_health(url: str, process: "subprocess.Popen[bytes]") -> None:
    end_s = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < end_s and process.poll() is None:
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(url).status_code == 200:
                return
        time.sleep(0.5)
    raise TimeoutError(f"vLLM did not serve within {_START_TIMEOUT_S:.0f} s")


def throughput_loss(engine_port: int, gateway_port: int, pid: int, *, rounds: int, requests: int) -> Loss:
    """Return the loss over rounds of 8 streams of 64 tokens with ids and log-probabilities.

    A round measures the engine alone and through the gateway in turns, in blocks of 16 requests: a machine whose speed
    drifts slows both.
    """

    def seconds(port: int) -> float:
        fields = {"ignore_eos": True, "logprobs": True, "return_token_ids": True}
        load = asyncio.run(run_load(port, pid, requests=_BLOCK, clients=8, is_stream=True, **fields))
        return _BLOCK / load.requests_per_s

    losses: list[float] = []
    seconds(gateway_port)  # warms up
    blocks = max(1, requests // _BLOCK)
    for number in range(rounds):
        spent = {engine_port: 0.0, gateway_port: 0.0}
        for block in range(blocks):
            order = (engine_port, gateway_port)
            for port in order if (number + block) % 2 else order[::-1]:
                spent[port] += seconds(port)
        alone, through = (blocks * _BLOCK / spent[port] for port in (engine_port, gateway_port))
        losses.append(1 - through / alone)
        print(f"{'vLLM, 8 streams':24} {alone:7.2f}/s alone, {through:7.2f}/s through the gateway", flush=True)
    width = _T_OF_FIVE * stdev(losses) / len(losses) ** 0.5 if len(losses) > 1 else float("nan")
    return Loss(mean(losses), width)


def count_retokenised(url: str, conversations: int, turns: int) -> tuple[int, int]:
    """Play conversations with tools at temperature 1, several at once.

    Returns:
        Turns that begin anew, because their prompt does not begin with the ids of the turn before, and all turns.
    """
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        counts = list(pool.map(lambda number: _count_anew(url, number, turns), range(conversations)))
    return sum(anew for anew, _ in counts), sum(counted for _, counted in counts)


def _count_anew(url: str, number: int, turns: int) -> tuple[int, int]:
    anew, counted = 0, 0
    before: list[int] = []
    for prompt, response in _play(url, number, turns):
        if before:
            counted += 1
            anew += prompt[: len(before)] != before
        before = prompt + response
    return anew, counted


def _play(url: str, number: int, turns: int) -> Iterator[tuple[list[int], list[int]]]:
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": question(_ITEMS[number % len(_ITEMS)], number % 7 + 1)},
    ]
    fields = {"tools": [tool.definition() for tool in TOOLS], "temperature": 1.0, "max_tokens": 40}
    for turn in range(turns):
        body = {"messages": messages, **fields, "seed": number * 100 + turn, "return_token_ids": True}
        document = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=600).raise_for_status().json()
        choice = document["choices"][0]
        yield document["prompt_token_ids"], choice["token_ids"]
        message = choice["message"]
        calls: list[dict[str, Any]] = message.get("tool_calls") or []
        answer = {"role": "assistant", "content": message.get("content") or ""}
        messages.append({**answer, "tool_calls": calls} if calls else answer)
        results = [{"role": "tool", "tool_call_id": call["id"], "content": "3.50"} for call in calls]
        messages += results or [{"role": "user", "content": "And then?"}]
