"""What others read of an export: OpenAI's rules for fine-tuning, Hugging Face's loader, verl's dataset."""

import json
import re
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanloop.converters.exports import KINDS, ExportOptions, export

from .converters_world import OPENING, World, answers, asks, text, trace_id
from .test_exports import ACTIONS, Json, attempt, lines, trajectories, transitions

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def broken_rules(line: Json) -> Iterator[str]:
    """What OpenAI's description of the chat format for fine-tuning forbids and ``line`` does."""
    if not line.keys() <= {"messages", "tools", "parallel_tool_calls"}:
        yield f"keys {sorted(line)}"
    messages, offered = line["messages"], line.get("tools", [])
    if messages[-1]["role"] != "assistant" or not any(message.get("weight") for message in messages):
        yield "it does not end with an assistant's message that is trained on"
    if "parallel_tool_calls" in line and not (offered and isinstance(line["parallel_tool_calls"], bool)):
        yield "parallel_tool_calls without tools"
    for tool in offered:
        function = tool["function"]
        if tool["type"] != "function" or not NAME.fullmatch(function["name"]):
            yield f"tool {tool}"
        if function.get("parameters", {"type": "object"}).get("type", "object") != "object":
            yield f"parameters of {function['name']}"
    yield from _broken_turns(messages)


def _broken_turns(messages: list[Json]) -> Iterator[str]:
    waiting: set[str] = set()
    for message in messages:
        role = message["role"]
        if role == "tool":
            if message["tool_call_id"] not in waiting or not isinstance(message["content"], str):
                yield f"tool message {message}"
            waiting.discard(message["tool_call_id"])
            continue
        if waiting:
            yield f"{role} speaks before {waiting} are answered"
        if role not in {"system", "user", "assistant"} or ("weight" in message) != (role == "assistant"):
            yield f"message {message}"
        if message.get("weight", 0) not in {0, 1}:
            yield f"weight {message['weight']}"
        calls = message.get("tool_calls", [])
        if message["content"] is None and not calls:
            yield "neither content nor tool calls"
        yield from _broken_calls(calls)
        waiting = {call["id"] for call in calls}


def _broken_calls(calls: list[Json]) -> Iterator[str]:
    if len({call["id"] for call in calls}) < len(calls):
        yield "two calls have one id"
    for call in calls:
        function = call["function"]
        if call["type"] != "function" or not NAME.fullmatch(function["name"]):
            yield f"call {call}"
        if not isinstance(json.loads(function["arguments"]), dict):
            yield f"arguments {function['arguments']}"


@given(
    st.lists(st.tuples(st.lists(ACTIONS, min_size=1, max_size=4), st.sampled_from([0.0, 1.0])), min_size=1, max_size=4)
)
def test_every_line_keeps_openais_rules(attempts: list[tuple[list[Json], float]]) -> None:
    world = World()
    for number, (said, reward) in enumerate(attempts):
        attempt(world, f"e{number}", *said, reward=reward)
    for line in lines("openai", transitions(world), min_reward=0.0)[0]:
        assert list(broken_rules(line)) == []


@pytest.mark.parametrize(
    ("tools", "reason"),
    [
        ([{"type": "function", "name": "a.b", "parameters": {"type": "object"}}], "invalid_tool_name"),
        ([{"type": "function", "name": "x" * 65}], "invalid_tool_name"),
        ([{"type": "function", "name": "ok", "parameters": ["no", "schema"]}], "invalid_tool_schema"),
        ([{"type": "function", "name": f"t{number}"} for number in range(129)], "too_many_tools"),
    ],
)
def test_tools_that_openai_refuses_are_rejected_by_name(tools: list[Json], reason: str) -> None:
    world = World()
    attempt(world, "a", text("assistant", "good"))
    rows = transitions(world)
    stored = json.dumps([{key: value for key, value in tool.items() if key != "type"} for tool in tools])
    for kind in ("openai", "preferences"):
        assert lines(kind, rows.with_columns(tools=pl.lit(stored)))[1:] == (0, {reason: 1})


def test_a_call_by_a_name_that_openai_refuses_is_rejected() -> None:
    world = World()
    attempt(world, "a", asks("c1", name="files/read"), text("assistant", "good"))
    assert lines("openai", transitions(world))[1:] == (0, {"invalid_tool_name": 2})


def verl_rows() -> World:
    """Two attempts at one task, with tokens."""
    world = World()
    for number, reward in enumerate((1.0, 0.0)):
        attempt(world, f"a{number}", asks("c1"), text("assistant", "x"), reward=reward)
        first = 2 * number + 1
        world.capture([1, 2, 3], [4, 5], response_id=f"chatcmpl-{first}")
        world.capture([1, 2, 3, 4, 5, 9], [6 + number], response_id=f"chatcmpl-{first + 1}")
    return world


def write(kind: str, rows: pl.DataFrame, folder: Path) -> list[str]:
    """The data files of an export."""
    export(kind, KINDS[kind], [rows], folder, query={}, episodes=[], options=ExportOptions())
    return sorted(map(str, (folder / "data").iterdir()))


def test_a_groups_shared_prompt_is_said() -> None:
    world = verl_rows()
    attempt(world, "alone", text("assistant", "x"), task="other")
    world.capture([1, 2, 3], [4], response_id="chatcmpl-5")
    made = KINDS["verl"].make(trajectories(world), ExportOptions())
    assert isinstance(made.rows, pl.DataFrame)
    shared = dict(made.rows.select("uid", "shared_prompt_tokens").iter_rows())
    assert shared == {"task": 3, "other": 0}


def test_token_rows_have_the_same_bytes_in_any_order(tmp_path: Path) -> None:
    rows = trajectories(verl_rows())
    one, two = (write("verl", given_rows, tmp_path / name) for name, given_rows in (("1", rows), ("2", rows.reverse())))
    assert [Path(path).read_bytes() for path in one] == [Path(path).read_bytes() for path in two]
    manifests = [(tmp_path / name / "manifest.json").read_bytes() for name in ("1", "2")]
    assert manifests[0] == manifests[1]


@pytest.mark.skipif(find_spec("datasets") is None, reason="datasets comes with the extra train")
@pytest.mark.filterwarnings("default")
def test_hugging_face_loads_an_export_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    datasets: Any = import_module("datasets")
    world = World()
    attempt(world, "a", asks("c1"), text("assistant", "x"))
    seen = [*OPENING, asks("c2"), answers("c2", "42")]
    world.call(seen, text("assistant", "y"), trace=trace_id("a"))
    write("parquet", transitions(world), tmp_path / "out")
    found = datasets.load_dataset(str(tmp_path / "out"), cache_dir=str(tmp_path / "cache"))["train"]
    assert found.num_rows == 3
    assert [json.loads(state)[0]["role"] for state in found["state"]] == ["system"] * 3


@pytest.mark.slow
@pytest.mark.skipif(find_spec("verl") is None, reason="verl comes with the extra train")
@pytest.mark.filterwarnings("default")
def test_verls_own_dataset_reads_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    settings, transformers, verl = (
        cast("Any", import_module(name)) for name in ("omegaconf", "transformers", "verl.utils.dataset.rl_dataset")
    )
    from spanloop.demo.tiny_model import build_tiny_model  # noqa: PLC0415

    build_tiny_model(tmp_path / "model", training_steps=0)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    files = write("verl", trajectories(verl_rows()), tmp_path / "out")
    config = settings.OmegaConf.create(
        {"cache_dir": str(tmp_path / "cache"), "max_prompt_length": 512, "filter_overlong_prompts_workers": 1}
    )
    dataset = verl.RLHFDataset(data_files=files, tokenizer=tokenizer, config=config)
    assert len(dataset) == 2
    first = dataset[0]
    assert [message["role"] for message in first["raw_prompt"]] == ["system", "user"]
    batch = verl.collate_fn([dataset[0], dataset[1]])
    assert list(batch["uid"]) == ["task", "task"]
    for ids, mask, logprobs in zip(
        batch["response_ids"], batch["response_mask"], batch["rollout_log_probs"], strict=True
    ):
        assert len(ids) == len(mask) == len(logprobs) == 4
        assert list(mask) == [1, 1, 0, 1]
    assert sorted(batch["reward"]) == [0.0, 1.0]


@pytest.mark.slow
@pytest.mark.skipif(find_spec("verl") is None, reason="verl comes with the extra train")
@pytest.mark.filterwarnings("default")
def test_verls_own_dataset_for_fine_tuning_trains_on_what_the_model_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    settings, transformers, verl = (
        cast("Any", import_module(name))
        for name in ("omegaconf", "transformers", "verl.utils.dataset.multiturn_sft_dataset")
    )
    from spanloop.demo.tiny_model import build_tiny_model  # noqa: PLC0415

    build_tiny_model(tmp_path / "model", training_steps=0)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    world = World()
    attempt(world, "a", text("assistant", "It is rainy."))
    attempt(world, "b", text("assistant", "I do not know."), task="other")
    (path,) = write("openai", transitions(world), tmp_path / "out")
    told = [json.loads(line) for line in Path(path).read_text().splitlines()]
    rows = [
        {"messages": [{key: said[key] for key in ("role", "content")} for said in line["messages"]]} for line in told
    ]
    pl.DataFrame(rows).write_parquet(tmp_path / "rows.parquet")
    config = settings.OmegaConf.create({"pad_mode": "no_padding", "max_length": 512, "truncation": "error"})
    dataset = verl.MultiTurnSFTDataset(
        parquet_files=[str(tmp_path / "rows.parquet")], tokenizer=tokenizer, config=config
    )
    assert len(dataset) == len(told) == 2
    for item, line in zip((dataset[0], dataset[1]), told, strict=True):
        ids, mask = (item[name].tolist() for name in ("input_ids", "loss_mask"))
        trained = tokenizer.decode([one for one, is_trained in zip(ids, mask, strict=True) if is_trained])
        given_words = tokenizer.decode([one for one, is_trained in zip(ids, mask, strict=True) if not is_trained])
        assert line["messages"][-1]["content"] in trained
        assert line["messages"][-1]["content"] not in given_words
        assert all(said["content"] in given_words for said in line["messages"][:-1])
