"""What vLLM serves of a LoRA job is what the trainer computes."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.logprob_agreement import TOLERANCE
from spanloop.foundation.paths import DataDir
from spanloop.foundation.settings.roles import EngineSettings
from spanloop.gateway.client.engine_client import EngineClient
from spanloop.gateway.engine.deployment import Deployment
from spanloop.gateway.engine.served_adapter import ServedAdapter
from spanloop.gateway.engine.serving_environment import SERVED_NAME, find_serving_environment
from spanloop.gateway.engine.vllm_server import ChildEngine
from spanloop.training.models.checkpoints import KeptAdapter, assemble_model, latest_checkpoint
from spanloop.training.models.registry import ADAPTER_BASE, Registry
from spanloop.training.models.serving_copy import serving_path
from spanloop.training.verl_plugin.train_plan import TrainPlan

from ..debug_training import debug_plan, train_here, write_dataset

GAP = "rollout_corr/logprob_abs_diff_mean"
SETTINGS = {"lora_rank": 4, "learning_rate": 1e-2, "batch_size": 3, "bfloat16": True}
"""A batch of all groups, in the precision that both engines have on a GPU."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncGenerator[ChildEngine]:
    try:
        find_serving_environment()
    except ConfigurationError:
        pytest.skip("no serving environment: make setup")
    async with EngineClient() as client:
        child = ChildEngine(EngineSettings(dtype="bfloat16"), client, tmp_path / "engine.log")
        yield child
        await child.stop()


async def served_logprobs(engine: ChildEngine, model: str, dataset: pl.DataFrame) -> list[list[float]]:
    """The log-probabilities that vLLM gives the response of each row."""
    rows: list[list[float]] = []
    async with EngineClient() as client:
        for prompt, response in dataset.select("prompt_token_ids", "response_token_ids").iter_rows():
            body = {"model": model, "prompt": prompt + response, "max_tokens": 1, "prompt_logprobs": 0}
            answer = await client.request("POST", f"{engine.api.base_url}/v1/completions", json=body)
            tokens: list[dict[str, Any]] = answer.json()["choices"][0]["prompt_logprobs"][len(prompt) :]
            rows.append([each[str(token)]["logprob"] for each, token in zip(tokens, response, strict=True)])
    return rows


def gap_to_the_trainer(plan: TrainPlan, served: list[list[float]], folder: Path) -> float:
    """Mean absolute difference in nats, as the trainer measures it at the beginning of its next step."""
    folder.mkdir()
    dataset = pl.read_parquet(plan.dataset_path)
    logprobs = pl.Series(served, dtype=dataset.schema["logprobs"])
    dataset.with_columns(logprobs=logprobs).write_parquet(folder / "dataset.parquet")
    resumed = plan.checkpoint_dir / "global_step_1"
    (step,) = train_here(debug_plan(plan.model_path, folder, steps=2, resume_from=resumed, **SETTINGS))
    return step.values[GAP]


def distance(one: list[list[float]], other: list[list[float]]) -> float:
    """Mean absolute difference, in nats."""
    pairs = [pair for rows in zip(one, other, strict=True) for pair in zip(*rows, strict=True)]
    return sum(abs(first - second) for first, second in pairs) / len(pairs)


async def test_vllm_serves_merged_weights_and_a_kept_adapter_with_the_trainers_log_probabilities(
    engine: ChildEngine, tiny_model: Path, tmp_path: Path, data_dir: DataDir
) -> None:
    write_dataset(tiny_model, tmp_path)
    plan = debug_plan(tiny_model, tmp_path, steps=1, **SETTINGS)
    train_here(plan)
    checkpoint = latest_checkpoint(plan.checkpoint_dir)
    assert checkpoint is not None
    dataset = pl.read_parquet(plan.dataset_path)
    registry = Registry(data_dir)
    base = registry.add("tiny", tiny_model)

    merged = registry.add("tiny", assemble_model(checkpoint, tiny_model, tmp_path / "merged"))
    await engine.start(str(serving_path(merged)))
    served = await served_logprobs(engine, SERVED_NAME, dataset)
    assert gap_to_the_trainer(plan, served, tmp_path / "from_merged") < TOLERANCE
    # the base's are further away
    assert distance(served, dataset["logprobs"].to_list()) > 2 * TOLERANCE

    folder = assemble_model(checkpoint, tiny_model, tmp_path / "kept", kept_adapter=KeptAdapter(base.reference))
    kept = registry.add("tiny", folder, metadata={ADAPTER_BASE: base.reference})
    adapter = ServedAdapter.of(Deployment(kept.name, kept.version, str(serving_path(base)), str(kept.path)))
    assert adapter is not None
    await engine.start(str(serving_path(base)), adapter)
    served = await served_logprobs(engine, kept.reference, dataset)
    assert gap_to_the_trainer(plan, served, tmp_path / "from_adapter") < TOLERANCE
    # beside it vLLM still has the base
    alone = await served_logprobs(engine, SERVED_NAME, dataset)
    assert distance(alone, dataset["logprobs"].to_list()) < TOLERANCE
