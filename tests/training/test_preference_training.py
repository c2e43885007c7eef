# pyright: basic
# torch and verl are half annotated
"""DPO on verl's engine, without Ray."""

from pathlib import Path
from typing import Any
from unittest.mock import patch

import polars as pl
import pytest
import torch
from transformers import AutoModelForCausalLM

from spanloop.semconv.enums import JobKind
from spanloop.training.dataset_pairs import Pairing, Side

from .debug_training import debug_plan, train_here, trained_weights
from .selection_rows import row, rules, select

def test_x(tiny_model: Path, tmp_path: Path) -> None:
    import random
    rng = random.Random(0)
    rows=[]
    for group in range(4):
        prompt = [rng.randrange(3, 300) for _ in range(rng.randrange(20, 40))]
        for number in range(4):
            for index in range(1 + number % 2):
                response = [rng.randrange(3, 300) for _ in range(rng.randrange(8, 20))]
                rows.append(row(f"g{group}-e{number}", f"g{group}", float(number % 2), index,
                    prompt_token_ids=prompt+[7]*index, response_token_ids=response,
                    loss_mask=[0 if 2 <= i < 4 else 1 for i in range(len(response))],
                    logprobs=[], sampled_ends=[len(response)]))
    selected = select(rows, rules(JobKind.DPO, vocabulary_size=400, pairing=Pairing(0,2,0))).rows
    selected.write_parquet(tmp_path / "dataset.parquet")
    plan = debug_plan(tiny_model, tmp_path, kind=JobKind.DPO, steps=4, batch_size=4)
    import time; t=time.time()
    steps = train_here(plan)
    print(time.time()-t)
    for s in steps: print(s.step, {k:v for k,v in s.values.items() if "perf" not in k})
    print((tmp_path/"reference.json").read_text()[:300])
