"""The gateway with a real vLLM and LoRA adapters of the tiny model."""
# transformers is only partly typed.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from spanloop.foundation.paths import DataDir
from spanloop.foundation.settings.roles import EngineSettings
from spanloop.gateway.engine.served_adapter import ServedAdapter
from spanloop.gateway.engine.serving_environment import ServingEnvironment, find_serving_environment, launch_command
from spanloop.training.models.files.lora_adapter import LowRank, read_adapter, write_adapter
from spanloop.training.models.files.lora_merge import merge_into_base
from spanloop.training.models.files.weights import check_weights
from spanloop.training.models.registry import ADAPTER_BASE, ModelVersion, Registry
from spanloop.training.promotion.deploy import deploy

from .support import Process, captures
from .test_vllm import MAKE_MODEL, QUESTION, serving_is_missing

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def base_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if serving_is_missing():
        pytest.skip("no serving environment: make setup")
    folder = tmp_path_factory.mktemp("models") / "base"
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", MAKE_MODEL, str(folder)], check=True, env=environment)
    return folder


def register_adapter(
    registry: Registry, base: ModelVersion, folder: Path, seed: int, rank: int, *, name: str = "tiny"
) -> ModelVersion:
    """An adapter of random matrices of all linear layers."""
    generator = torch.Generator().manual_seed(seed)
    shapes = {name.removesuffix(".weight"): tensor.shape for name, tensor in check_weights(base.path).tensors.items()}
    adapter = {
        layer: LowRank(
            0.1 * torch.randn(rank, shape[1], generator=generator),
            0.1 * torch.randn(shape[0], rank, generator=generator),
        )
        for layer, shape in shapes.items()
        if layer.endswith("_proj")
    }
    shutil.copytree(base.path, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    write_adapter(adapter, base.reference, folder)
    return registry.add(name, folder, parent=base.reference, metadata={ADAPTER_BASE: base.reference})


def answer(process: Process, name: str = "tiny") -> tuple[str, list[int], list[int], list[float]]:
    """The version that answered, its prompt, its tokens and their log-probabilities."""
    response = process.client.chat.completions.create(model=name, messages=QUESTION, max_tokens=32, temperature=1.0)
    capture = next(each for each in captures(process) if each.response_id == response.id)
    assert capture.policy_version == response.model
    return response.model, capture.prompt_token_ids, capture.response_token_ids, capture.logprobs


def recomputed(folder: Path, prompt: list[int], response: list[int]) -> torch.Tensor:
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    ids = torch.tensor([prompt + response])
    with torch.no_grad():
        logprobs = model(ids).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
    chosen: torch.Tensor = logprobs.gather(1, ids[0, len(prompt) :, None])[:, 0]
    return chosen


def test_the_gateway_serves_replaces_and_rolls_back_adapters(
    base_folder: Path, data_dir: DataDir, tmp_path: Path
) -> None:
    registry = Registry(data_dir)
    base = registry.add("tiny", base_folder)
    adapters = [register_adapter(registry, base, tmp_path / f"a{seed}", seed, rank) for seed, rank in ((2, 4), (3, 8))]
    merged = {base.reference: base.path}
    for version in adapters:
        merged[version.reference] = tmp_path / version.version
        merged[version.reference].mkdir()
        merge_into_base(read_adapter(version.path), base.path, merged[version.reference])
    process = Process(data_dir, "--dtype", "float32")
    try:
        for reference, started in (("tiny@v1", 1), ("tiny@v2", 2), ("tiny@v3", 2), ("tiny@v2", 2), ("tiny@v1", 3)):
            assert deploy(data_dir, reference).reference == reference
            model, prompt, response, logprobs = answer(process)
            assert model == reference
            gaps = {
                each: float((recomputed(folder, prompt, response) - torch.tensor(logprobs)).abs().mean())
                for each, folder in merged.items()
            }
            assert gaps[reference] < 0.01
            assert min(gap for each, gap in gaps.items() if each != reference) > 0.05
            assert process.log.read_text().count("the engine is ready") == started
    finally:
        process.stop()
    assert registry.deployed() == base


def test_adapters_are_served_by_name_beside_their_base(base_folder: Path, data_dir: DataDir, tmp_path: Path) -> None:
    registry = Registry(data_dir)
    base = registry.add("tiny", base_folder)
    folders = {base.reference: base.path}
    for seed, name in ((2, "support"), (3, "sales")):
        version = register_adapter(registry, base, tmp_path / name, seed, 8, name=name)
        folders[version.reference] = tmp_path / f"merged-{name}"
        folders[version.reference].mkdir()
        merge_into_base(read_adapter(version.path), base.path, folders[version.reference])
    process = Process(data_dir, "--dtype", "float32", "--max-adapters", "2", "--max-lora-rank", "8")
    try:
        for reference in folders:
            deploy(data_dir, reference, is_beside=True)
        for reference in folders:
            model, prompt, response, logprobs = answer(process, reference.partition("@")[0])
            assert model == reference
            gaps = {
                each: float((recomputed(folder, prompt, response) - torch.tensor(logprobs)).abs().mean())
                for each, folder in folders.items()
            }
            assert gaps[reference] < 0.01
            assert min(gap for each, gap in gaps.items() if each != reference) > 0.02
        assert process.log.read_text().count("starting vllm") == 1
    finally:
        process.stop()


def test_vllms_own_parser_takes_the_command_line_of_a_gpu(
    base_folder: Path,
) -> None:
    found = find_serving_environment()
    gpu = ServingEnvironment(found.path, "vllm", found.version, is_cpu=False)
    adapter = ServedAdapter("tiny@v2", "/adapters/v2", 16)
    settings = EngineSettings(max_model_len=2048, vllm_args="--gpu-memory-utilization 0.4")
    launch = launch_command(gpu, str(base_folder), Path("/tmp/vllm.sock"), settings, adapter)
    python, _, module, *options = launch.command
    assert module == "vllm.entrypoints.openai.api_server"
    script = (
        "import sys\n"
        "from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args\n"
        "from vllm.utils.argparse_utils import FlexibleArgumentParser\n"
        "args = make_arg_parser(FlexibleArgumentParser()).parse_args(sys.argv[1:])\n"
        "validate_parsed_serve_args(args)\n"
        "print([(each.name, each.path) for each in args.lora_modules], args.enable_lora, args.max_lora_rank,\n"
        "      args.enable_sleep_mode, args.gpu_memory_utilization)\n"
    )
    completed = subprocess.run(
        [python, "-c", script, *options], env=dict(launch.environment), capture_output=True, text=True, check=False
    )
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout.splitlines()[-1] == "[('tiny@v2', '/adapters/v2')] True 16 True 0.4"
