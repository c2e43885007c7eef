"""What verl's GRPO step costs on stored trajectories, as a ratio against the least that any trainer must do.

    python benchmarks/train.py [--quick]

Named baseline, in this process: forward, backward and AdamW step of the same rows with plain torch, padded, on as many
threads. A Llama of random weights, groups of eight rows that share a prompt. ``ratio plain=0.5`` says that verl takes
half as many tokens per second through a whole step (log-probabilities recomputed, bookkeeping; checkpoints left out) as
the plain loop; ``update`` is the same for verl's update of the actor alone. ``start_s`` is the job's time outside its
steps: Ray, imports, loading, shutting down.
"""

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import polars as pl
import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from spanloop.semconv.enums import JobKind
from spanloop.training.job_spec import Device
from spanloop.training.metrics import MetricsTail
from spanloop.training.tiny import build_tiny_model
from spanloop.training.verl_plugin.plan import TrainPlan

GROUP_SIZE = 8
PROMPT_TOKENS, RESPONSE_TOKENS = 160, 48
THREADS = 1


def main() -> None:
    """Run the job, then the baseline, and print the ratios."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a smaller model and fewer steps; half a minute")
    arguments = parser.parse_args()
    layers, hidden, groups, steps = (2, 128, 2, 3) if arguments.quick else (8, 384, 8, 5)
    with tempfile.TemporaryDirectory(prefix="train-", dir="/tmp") as name:
        folder = Path(name)
        make_model(folder / "model", layers=layers, hidden=hidden)
        rows = make_rows(groups)
        rows.write_parquet(folder / "dataset.parquet")
        timings, job_s = run_verl(folder, groups, steps)
        baseline_s = statistics.median(run_baseline(folder / "model", rows, steps)[1:])
    # the first step of either warms up
    update_s = statistics.median(timing["timing_s/update_actor"] for timing in timings[1:])
    step_s = statistics.median(
        timing["timing_s/step"] - timing.get("timing_s/save_checkpoint", 0.0) for timing in timings[1:]
    )
    start_s = job_s - sum(timing["timing_s/step"] for timing in timings)
    tokens = rows.height * (PROMPT_TOKENS + RESPONSE_TOKENS)
    print(f"verl tokens_per_s={tokens / step_s:.0f} start_s={start_s:.1f}")
    print(f"plain tokens_per_s={tokens / baseline_s:.0f} update={baseline_s / update_s:.2f}")
    print(f"ratio plain={baseline_s / step_s:.2f}")


def make_model(path: Path, *, layers: int, hidden: int) -> None:
    """A Llama of random weights with the tiny model's tokenizer."""
    build_tiny_model(path, training_steps=0)
    vocabulary = len(PreTrainedTokenizerFast.from_pretrained(path))
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=hidden,
        intermediate_size=hidden * 3,
        num_hidden_layers=layers,
        num_attention_heads=4,
        max_position_embeddings=1024,
    )
    LlamaForCausalLM(config).save_pretrained(path)


def make_rows(groups: int) -> pl.DataFrame:
    """Rows as ``spanloop.training.dataset`` exports them."""
    rng = random.Random(0)
    rows: list[dict[str, Any]] = []
    for group in range(groups):
        prompt = [rng.randrange(3, 300) for _ in range(PROMPT_TOKENS)]
        rows += [
            {
                "group_id": f"g{group}",
                "session": session,
                "row_number": 0,
                "prompt_token_ids": prompt,
                "response_token_ids": [rng.randrange(3, 300) for _ in range(RESPONSE_TOKENS)],
                "loss_mask": [1] * RESPONSE_TOKENS,
                "logprobs": [-6.0] * RESPONSE_TOKENS,
                "reward": float(session % 2),
            }
            for session in range(GROUP_SIZE)
        ]
    return pl.DataFrame(rows)


def run_verl(folder: Path, groups: int, steps: int) -> tuple[list[dict[str, float]], float]:
    """Verl's timings of each step, and the seconds of the whole subprocess."""
    plan = TrainPlan(
        kind=JobKind.GRPO,
        job_id="benchmark",
        model_path=folder / "model",
        dataset_path=folder / "dataset.parquet",
        checkpoint_dir=folder / "checkpoints",
        metrics_path=folder / "metrics.jsonl",
        failure_path=folder / "failure.json",
        steps=steps,
        batch_size=groups,
        learning_rate=1e-5,
        max_prompt_tokens=PROMPT_TOKENS,
        max_response_tokens=RESPONSE_TOKENS,
        micro_batch_tokens=4096,
        save_every_steps=steps,
        ray_temp_dir=folder / "ray",
        threads=THREADS,
        device=Device.CPU,
    )
    (folder / "plan.json").write_text(plan.model_dump_json())
    command = [sys.executable, "-m", "spanloop.training.verl_plugin.main", str(folder / "plan.json")]
    started_s = time.monotonic()
    environment = os.environ | {"PYTHONWARNINGS": "ignore"}
    with (folder / "log.txt").open("wb") as log:
        status = subprocess.run(command, stdout=log, stderr=log, env=environment, check=False).returncode
    if status != 0:
        raise SystemExit((folder / "log.txt").read_text())
    timings = [dict(step.values) for step in MetricsTail(plan.metrics_path).read()]
    return timings, time.monotonic() - started_s


def run_baseline(model_path: Path, rows: pl.DataFrame, steps: int) -> list[float]:
    """Seconds of each plain step on the same rows."""
    torch.set_num_threads(THREADS)
    loader: Any = LlamaForCausalLM
    model = loader.from_pretrained(model_path, dtype=torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    prompts, responses = rows["prompt_token_ids"].to_list(), rows["response_token_ids"].to_list()
    tokens = torch.tensor([prompt + response for prompt, response in zip(prompts, responses, strict=True)])
    rewards = torch.tensor(rows["reward"].to_list())
    advantages = (rewards - rewards.view(-1, GROUP_SIZE).mean(1).repeat_interleave(GROUP_SIZE))[:, None]
    seconds: list[float] = []
    for _ in range(steps):
        started_s = time.monotonic()
        optimizer.zero_grad()
        for part in torch.arange(len(tokens)).split(16):
            scores = model(tokens[part]).logits[:, PROMPT_TOKENS - 1 : -1].log_softmax(-1)
            chosen = scores.gather(2, tokens[part][:, PROMPT_TOKENS:, None]).squeeze(2)
            (-(advantages[part] * chosen).sum() / (len(tokens) * RESPONSE_TOKENS)).backward()
        optimizer.step()
        seconds.append(time.monotonic() - started_s)
    return seconds


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", str(THREADS))
    main()
