"""What verl's GRPO step costs on stored trajectories, as a ratio against plain torch on the same rows.

    python benchmarks/train.py [--quick] [--threads 2]

The model is SmolLM2-135M's architecture with random weights and its whole vocabulary. The rows are those of an agent:
one long prompt that all rows share (instructions, tools), a question for each group of eight, short answers.

Two named baselines in this process, both with the threads and the precision of the job: forward, backward and AdamW
step of a plain loop over padded rows, logits of responses only; and the same with each group's prompt computed once
(its keys and values cached, its answers on top). ``ratio plain=2`` says that verl takes twice as many tokens per
second through a whole step (bookkeeping included, checkpoints left out) as the first, ``shared=`` the same for the
second; ``update`` counts the actor's update alone. ``start_s`` is the job's time outside its steps: Ray, imports,
loading, saving, shutting down; ``peak_gb`` the memory of all its processes (proportional set size).

``merged`` compares, for agents' episodes of six turns within 2,048 tokens, forward and backward in float32 of one row
for each episode with one row for each turn, no prefix shared: the wall time of the second divided by that of the first.
Their gradients must agree.

Without ``--quick``, a table of what each of the engine's choices brings: forward and backward of one group's rows.
"""

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import psutil
import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from spanloop.demo.tiny_model import build_tiny_model
from spanloop.foundation.cpu_features import computes_bfloat16
from spanloop.training.recipes.registry import parse_recipe
from spanloop.training.run.monitor.metrics import MetricsTail
from spanloop.training.run.planning import training_threads
from spanloop.training.spec.choices import Device
from spanloop.training.spec.defaults import MICRO_BATCH_TOKENS
from spanloop.training.spec.optimiser import Optimiser
from spanloop.training.spec.run_settings import RunSettings
from spanloop.training.verl_plugin.engine.attention_plan import plan_attention
from spanloop.training.verl_plugin.engine.packed_batch import micro_batches, pack_batch
from spanloop.training.verl_plugin.engine.token_logprobs import token_logprobs
from spanloop.training.verl_plugin.engine.tree_attention import ATTENTION, tree_attention
from spanloop.training.verl_plugin.train_plan import TrainPlan

GROUP_SIZE = 8
SYSTEM_TOKENS, QUESTION_TOKENS, RESPONSE_TOKENS = 400, 50, 70
PROMPT_TOKENS = SYSTEM_TOKENS + QUESTION_TOKENS
VOCABULARY = 49_152
TURNS = 6
TASK_TOKENS, OBSERVATION_TOKENS, ACTION_TOKENS = 500, 180, 80
"""Of an episode of six turns: 1,880 tokens."""
GRADIENT_TOLERANCE = 1e-4
"""Largest difference of the gradients of merged and single rows in float32, relative to the largest gradient."""


class Shape(NamedTuple):
    """How much of it: layers of the model, prompt groups in a batch, steps of the job, episodes of six turns."""

    layers: int
    groups: int
    steps: int
    episodes: int

    @property
    def tokens(self) -> int:
        """Of all rows of a batch, prompts counted for each."""
        return self.groups * GROUP_SIZE * (PROMPT_TOKENS + RESPONSE_TOKENS)


QUICK = Shape(layers=10, groups=2, steps=3, episodes=1)
FULL = Shape(layers=30, groups=4, steps=4, episodes=4)


def main() -> None:
    """Run the job, then the baselines, and print the ratios."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a third of the layers, half of the rows")
    parser.add_argument(
        "--threads",
        type=int,
        default=training_threads(whole_machine=True),
        help="OpenMP threads of the job and of the baselines; all cores",
    )
    arguments = parser.parse_args()
    shape = QUICK if arguments.quick else FULL
    torch.set_num_threads(arguments.threads)
    with tempfile.TemporaryDirectory(prefix="train-", dir="/tmp") as name:
        folder = Path(name)
        make_model(folder / "model", layers=shape.layers)
        rows = make_rows(shape.groups)
        rows.write_parquet(folder / "dataset.parquet")
        job = run_verl(folder, shape, arguments.threads)
        baselines = Baselines(folder / "model", rows)
        plain_s, shared_s = baselines.seconds(baselines.plain_step), baselines.seconds(baselines.sharing_step)
        print(f"verl tokens_per_s={shape.tokens / job.step_s:.0f} start_s={job.start_s:.1f} peak_gb={job.peak_gb:.1f}")
        print(f"plain tokens_per_s={shape.tokens / plain_s:.0f} update={plain_s / job.update_s:.2f}")
        print(f"sharing tokens_per_s={shape.tokens / shared_s:.0f} update={shared_s / job.update_s:.2f}")
        model = load_sharing(folder / "model")
        merged = merged_ratio(model, shape.episodes)
        if not arguments.quick:
            print_variants(model, rows)
    print(f"ratio plain={plain_s / job.step_s:.2f} shared={shared_s / job.step_s:.2f} merged={merged:.2f}")


def make_model(path: Path, *, layers: int) -> None:
    """SmolLM2-135M's architecture, random weights, and the tiny model's tokenizer (token ids are all that counts)."""
    build_tiny_model(path, training_steps=0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=layers,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=8192,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
    )
    LlamaForCausalLM(config).save_pretrained(path)


def make_rows(groups: int) -> pl.DataFrame:
    """Rows as ``spanloop.training.dataset.export`` exports them."""
    rng = random.Random(0)

    def some(length: int) -> list[int]:
        return [rng.randrange(3, VOCABULARY) for _ in range(length)]

    system = some(SYSTEM_TOKENS)
    rows: list[dict[str, Any]] = []
    for group in range(groups):
        prompt = system + some(QUESTION_TOKENS)
        rows += [
            {
                "group_id": f"g{group}",
                "session": session,
                "row_number": 0,
                "prompt_token_ids": prompt,
                "response_token_ids": some(RESPONSE_TOKENS),
                "loss_mask": [1] * RESPONSE_TOKENS,
                "logprobs": [-11.0] * RESPONSE_TOKENS,
                "reward": float(session % 2),
                "advantages": [session % 2 - 0.5] * RESPONSE_TOKENS,
                "age_versions": 0,
                "age_days": 0.0,
            }
            for session in range(GROUP_SIZE)
        ]
    return pl.DataFrame(rows)


class Job(NamedTuple):
    """What the verl job took; medians of its steps without the first, which warms up."""

    step_s: float
    update_s: float
    start_s: float
    peak_gb: float


def run_verl(folder: Path, shape: Shape, threads: int) -> Job:
    """Train ``shape.steps`` steps in verl's subprocess."""
    plan = TrainPlan(
        # the rows' log-probabilities are made up, so the policy is far from their sampler
        recipe=parse_recipe({"kind": "dr_grpo", "kl_budget": None}),
        optimiser=Optimiser(learning_rate=1e-5),
        run=RunSettings(device=Device.CPU),
        job_id="benchmark",
        model_path=folder / "model",
        dataset_path=folder / "dataset.parquet",
        checkpoint_dir=folder / "checkpoints",
        metrics_path=folder / "metrics.jsonl",
        failure_path=folder / "failure.json",
        steps=shape.steps,
        batch_size=shape.groups,
        max_prompt_tokens=PROMPT_TOKENS,
        max_response_tokens=RESPONSE_TOKENS,
        micro_batch_tokens=MICRO_BATCH_TOKENS,
        bfloat16=computes_bfloat16(),
        save_every_steps=shape.steps,
        ray_temp_dir=folder / "ray",
        threads=threads,
        device=Device.CPU,
    )
    (folder / "plan.json").write_text(plan.model_dump_json())
    command = [sys.executable, "-m", "spanloop.training.verl_plugin.main", str(folder / "plan.json")]
    started_s = time.monotonic()
    with (folder / "log.txt").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | {"PYTHONWARNINGS": "ignore"})
        peak = PeakMemory(process.pid)
        status = process.wait()
        job_s = time.monotonic() - started_s
        peak_gb = peak.stop()
    if status != 0:
        raise SystemExit((folder / "log.txt").read_text())
    steps = [dict(step.values) for step in MetricsTail(plan.metrics_path).read()]
    return Job(
        step_s=statistics.median(step["timing_s/step"] - step.get("timing_s/save_checkpoint", 0) for step in steps[1:]),
        update_s=statistics.median(step["timing_s/update_actor"] for step in steps[1:]),
        start_s=job_s - sum(step["timing_s/step"] - step.get("timing_s/save_checkpoint", 0) for step in steps),
        peak_gb=peak_gb,
    )


class PeakMemory:
    """Watches the memory of a process and all that it starts, each shared page counted once."""

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._peak_bytes = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.wait(1.0):
            try:
                members = [self._root, *self._root.children(recursive=True)]
            except psutil.Error:
                continue
            self._peak_bytes = max(self._peak_bytes, sum(map(self._bytes, members)))

    @staticmethod
    def _bytes(process: psutil.Process) -> int:
        try:
            return int(process.memory_full_info().pss)
        except psutil.Error:
            return 0

    def stop(self) -> float:
        """The peak in GB."""
        self._over.set()
        self._thread.join()
        return self._peak_bytes / 1e9


class Baselines:
    """GRPO steps as plain torch would take them on these rows."""

    def __init__(self, model_path: Path, rows: pl.DataFrame) -> None:
        self.model = load(model_path)
        self._optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-5)
        prompts, responses = rows["prompt_token_ids"].to_list(), rows["response_token_ids"].to_list()
        self._tokens = torch.tensor([prompt + response for prompt, response in zip(prompts, responses, strict=True)])
        rewards = torch.tensor(rows["reward"].to_list())
        self._advantages = (rewards - rewards.view(-1, GROUP_SIZE).mean(1).repeat_interleave(GROUP_SIZE))[:, None]

    def seconds(self, step: Callable[[int], None]) -> float:
        """Of one step over all rows, after one over a group that warms up."""
        taken_s = 0.0
        for rows in (GROUP_SIZE, len(self._tokens)):
            started_s = time.monotonic()
            self._optimizer.zero_grad()
            step(rows)
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self._optimizer.step()
            taken_s = time.monotonic() - started_s
        return taken_s

    def plain_step(self, rows: int) -> None:
        """Eight whole rows at a time."""
        for part in torch.arange(rows).split(GROUP_SIZE):
            with autocast(computes_bfloat16()):
                logits = self.model(self._tokens[part], logits_to_keep=RESPONSE_TOKENS + 1, use_cache=False).logits
            self._backward(part, logits[:, :-1])

    def sharing_step(self, rows: int) -> None:
        """A group at a time: its prompt once, its responses on top of the prompt's keys and values."""
        for part in torch.arange(rows).split(GROUP_SIZE):
            prompt, responses = self._tokens[part[:1], :PROMPT_TOKENS], self._tokens[part, PROMPT_TOKENS:]
            with autocast(computes_bfloat16()):
                cache: Any = DynamicCache(config=self.model.config)
                first = self.model(prompt, past_key_values=cache, use_cache=True, logits_to_keep=1).logits
                cache.batch_repeat_interleave(GROUP_SIZE)
                rest = self.model(responses[:, :-1], past_key_values=cache, use_cache=True).logits
            self._backward(part, torch.cat([first.expand(GROUP_SIZE, -1, -1), rest], 1))

    def _backward(self, part: torch.Tensor, logits: torch.Tensor) -> None:
        scores = logits.float().log_softmax(-1)
        chosen = scores.gather(2, self._tokens[part][:, PROMPT_TOKENS:, None]).squeeze(2)
        (-(self._advantages[part] * chosen).sum() / (len(self._tokens) * RESPONSE_TOKENS)).backward()


def load(model_path: Path) -> Any:
    """The model in float32."""
    loader: Any = LlamaForCausalLM
    return loader.from_pretrained(model_path, dtype=torch.float32)


def autocast(bfloat16: bool) -> AbstractContextManager[Any]:  # noqa: FBT001
    """Forward in bfloat16 or as it is."""
    return torch.autocast("cpu", torch.bfloat16) if bfloat16 else nullcontext()


def load_sharing(model_path: Path) -> Any:
    """The model in float32, with the engine's attention over packed rows."""
    ALL_ATTENTION_FUNCTIONS.register(ATTENTION, tree_attention)
    model = load(model_path)
    model.set_attn_implementation(ATTENTION)
    return model


class Rows(NamedTuple):
    """Rows of token ids, and for each a mask of its last tokens that marks the trained ones."""

    sequences: list[torch.Tensor]
    masks: list[torch.Tensor]


def merged_ratio(model: Any, count: int) -> float:
    """How much longer ``count`` episodes take as one row for each turn than as one row each; compares gradients."""
    merged, single = episode_rows(count)
    pass_seconds(model, Rows(merged.sequences[:1], merged.masks[:1]), bfloat16=False, share=True)  # warms up
    merged_s = pass_seconds(model, merged, bfloat16=False, share=True)
    expected = gradient(model)
    single_s = pass_seconds(model, single, bfloat16=False, share=False)
    difference = float((gradient(model) - expected).abs().max() / expected.abs().max())
    if difference > GRADIENT_TOLERANCE:
        raise SystemExit(f"the gradients of merged and single rows differ by {difference:.1e} of the largest")
    tokens = [sum(map(len, rows.sequences)) for rows in (merged, single)]
    print(
        f"merged episodes={count} tokens={tokens[0]} s={merged_s:.2f}; "
        f"a row for each turn: tokens={tokens[1]} s={single_s:.2f}; gradients differ by {difference:.1e}",
        flush=True,
    )
    return single_s / merged_s


def episode_rows(count: int) -> tuple[Rows, Rows]:
    """The same episodes as merged rows, and as one row for each turn."""
    draw = torch.Generator().manual_seed(0)
    merged, single = Rows([], []), Rows([], [])
    for _ in range(count):
        ids, mask = torch.zeros(0, dtype=torch.int64), torch.zeros(0)
        for turn in range(TURNS):
            seen = OBSERVATION_TOKENS if turn else TASK_TOKENS
            new = torch.randint(3, VOCABULARY, (seen + ACTION_TOKENS,), generator=draw)
            ids, mask = torch.cat([ids, new]), torch.cat([mask, torch.zeros(seen), torch.ones(ACTION_TOKENS)])
            single.sequences.append(ids)
            single.masks.append(torch.ones(ACTION_TOKENS))
        merged.sequences.append(ids)
        merged.masks.append(mask)
    return merged, single


def gradient(model: Any) -> torch.Tensor:
    """All gradients as one vector."""
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


def print_variants(model: Any, rows: pl.DataFrame) -> None:
    """Tokens per second of one group's rows, forward and backward, for every combination of the engine's choices."""
    group = rows.head(GROUP_SIZE)
    sequences = [torch.tensor(row["prompt_token_ids"] + row["response_token_ids"]) for row in group.to_dicts()]

    def masked(*, all_logits: bool) -> Rows:
        wanted = PROMPT_TOKENS + RESPONSE_TOKENS if all_logits else RESPONSE_TOKENS
        return Rows(sequences, [torch.ones(wanted)] * len(sequences))

    pass_seconds(model, masked(all_logits=False), bfloat16=False, share=True)  # warms up
    print("| compute | prompts | logits | tokens/s |\n|---|---|---|---|")
    for bfloat16 in (False, True):
        for share in (False, True):
            for all_logits in (True, False):
                variant_s = pass_seconds(model, masked(all_logits=all_logits), bfloat16=bfloat16, share=share)
                names = ("bfloat16" if bfloat16 else "float32", "shared" if share else "for each row")
                speed = sum(map(len, sequences)) / variant_s
                print(f"| {' | '.join(names)} | {'all' if all_logits else 'responses'} | {speed:.0f} |", flush=True)


def pass_seconds(model: Any, rows: Rows, *, bfloat16: bool, share: bool) -> float:
    """Seconds of forward and backward; the loss is the mean over the trained tokens of all rows."""
    model.zero_grad()
    trained = sum(float(mask.sum()) for mask in rows.masks)
    started_s = time.monotonic()
    for part in micro_batches(rows.sequences, MICRO_BATCH_TOKENS, share=share):
        batch = pack_batch([rows.sequences[i] for i in part], [rows.masks[i] for i in part], share=share)
        with autocast(bfloat16):
            hidden = model.model(
                input_ids=batch.input_ids,
                position_ids=batch.position_ids,
                attention_plan=plan_attention(batch.layout, torch.device("cpu")),
                use_cache=False,
            ).last_hidden_state[0, batch.logits_at]
            weight = model.lm_head.weight.to(torch.bfloat16) if bfloat16 else model.lm_head.weight
        (token_logprobs(hidden, weight, batch.rows, batch.labels).logprobs.sum() / trained).backward()
    return time.monotonic() - started_s


if __name__ == "__main__":
    main()
