"""What vLLM serves of a LoRA job is what the trainer computes."""

from pathlib import Path
from typing import Any

import httpx
import polars as pl
import pytest

from spanloop.datadir import DataDir
from spanloop.gateway.engine import ChildEngine
from spanloop.gateway.serving_environment import find_serving_environment
from spanloop.gateway.settings import SERVED_NAME, EngineSettings
from spanloop.semconv.errors import ConfigurationError
from spanloop.training.checkpoints import assemble_model, latest_checkpoint
from spanloop.training.logprob_agreement import TOLERANCE
from spanloop.training.registry import Registry
from spanloop.training.serving_copy import serving_path
from spanloop.training.verl_plugin.train_plan import TrainPlan

from .debug_training import debug_plan, train_here, write_dataset

GAP = "rollout_corr/logprob_abs_diff_mean"
SETTINGS = {"lora_rank": 4, "learning_rate": 1e-2, "batch_size": 3, "bfloat16": True}
"""A batch of all groups, in the precision that both engines have on a GPU."""


async def served_logprobs(model: Path, log: Path, dataset: pl.DataFrame) -> list[list[float]]:
    """The log-probabilities that vLLM gives the response of each row."""
    async with httpx.AsyncClient(timeout=60) as client:
        engine = ChildEngine(EngineSettings(dtype="bfloat16"), client, log)
        await engine.start(str(model))
        try:
            rows: list[list[float]] = []
            for prompt, response in dataset.select("prompt_token_ids", "response_token_ids").iter_rows():
                body = {"model": SERVED_NAME, "prompt": prompt + response, "max_tokens": 1, "prompt_logprobs": 0}
                answer = await client.post(f"{engine.api.base_url}/v1/completions", json=body)
                of_tokens: list[dict[str, Any]] = answer.json()["choices"][0]["prompt_logprobs"][len(prompt) :]
                rows.append([each[str(token)]["logprob"] for each, token in zip(of_tokens, response, strict=True)])
            return rows
        finally:
            await engine.stop()


def gap_to_the_trainer(plan: TrainPlan, served: list[list[float]], folder: Path) -> float:
    """Mean absolute difference in nats, as the trainer measures it at the beginning of its next step."""
    folder.mkdir()
    dataset = pl.read_parquet(plan.dataset_path)
    dataset.with_columns(logprobs=pl.Series(served, dtype=dataset.schema["logprobs"])).write_parquet(
        folder / "dataset.parquet"
    )
    resumed = plan.checkpoint_dir / "global_step_1"
    (step,) = train_here(debug_plan(plan.model_path, folder, steps=2, resume_from=resumed, **SETTINGS))
    return step.values[GAP]


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_vllm_serves_the_merged_weights_with_the_trainers_log_probabilities(
    tiny_model: Path, tmp_path: Path, data_dir: DataDir
) -> None:
    try:
        find_serving_environment()
    except ConfigurationError:
        pytest.skip("no serving environment: make setup")
    write_dataset(tiny_model, tmp_path)
    plan = debug_plan(tiny_model, tmp_path, steps=1, **SETTINGS)
    train_here(plan)
    checkpoint = latest_checkpoint(plan.checkpoint_dir)
    assert checkpoint is not None
    version = Registry(data_dir).add("tiny", assemble_model(checkpoint, tiny_model, tmp_path / "merged"))

    dataset = pl.read_parquet(plan.dataset_path)
    served = await served_logprobs(serving_path(version), tmp_path / "engine.log", dataset)
    assert gap_to_the_trainer(plan, served, tmp_path / "again") < TOLERANCE
    # the base's are further away than that
    moved = pl.Series(served).explode(empty_as_null=True) - dataset["logprobs"].explode(empty_as_null=True)
    assert moved.abs().mean() > TOLERANCE  # type: ignore[operator]
