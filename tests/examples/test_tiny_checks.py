"""The tiny demo's check of prompts: other spellings of the policy's own words are exact, other ids are not."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from transformers import AutoTokenizer

from spanloop.demo.tiny_checks import count_exact_prompts
from spanloop.demo.tiny_model import build_tiny_model

QUESTION = {"role": "user", "parts": [{"type": "text", "content": "What do 2 cups cost?"}]}
ANSWER = {"role": "assistant", "parts": [{"type": "text", "content": "price"}]}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    build_tiny_model(folder, training_steps=0)
    return folder


def load_tokenizer(model: Path) -> Any:
    loader: Any = AutoTokenizer
    return loader.from_pretrained(model)


def steps(model: Path, *, spelling: str, change: int = 0, logprobs: int | None = None) -> pl.DataFrame:
    """Two steps of an episode, of which the first one's answer was sampled with the tokens of ``spelling``'s words."""
    tokenizer = load_tokenizer(model)

    def ids(text: str) -> list[int]:
        encoded: list[int] = tokenizer.encode(text, add_special_tokens=False)
        return encoded

    question = ids("<|im_start|>user\nWhat do 2 cups cost?<|im_end|>\n")
    first = [*question, *ids("<|im_start|>assistant\n")]
    sampled = [*(token for word in spelling.split() for token in ids(word)), *ids("<|im_end|>")]
    second = [*first, *sampled, *ids("\n<|im_start|>user\nWhat do 2 cups cost?<|im_end|>\n<|im_start|>assistant\n")]
    second[-1] += change
    rows = [([QUESTION], first, sampled), ([QUESTION, ANSWER, QUESTION], second, sampled)]
    return pl.DataFrame(
        [
            {
                "episode_id": "e",
                "state": json.dumps(state),
                "tools": "[]",
                "prompt_token_ids": prompt,
                "response_token_ids": response,
                "logprobs": [-1.0] * (len(response) if logprobs is None else logprobs),
            }
            for state, prompt, response in rows
        ]
    )


@pytest.mark.parametrize("spelling", ["price", "p r i c e"])
def test_a_continued_prompt_has_the_sampled_tokens_however_they_spell_a_word(model: Path, spelling: str) -> None:
    assert count_exact_prompts(steps(model, spelling=spelling), model) == 2


def test_other_text_other_ids_and_missing_logprobs_are_not_exact(model: Path) -> None:
    assert count_exact_prompts(steps(model, spelling="prices"), model) == 1
    assert count_exact_prompts(steps(model, spelling="p r i c e", change=1), model) == 1
    assert count_exact_prompts(steps(model, spelling="price", logprobs=1), model) == 0
    continued = steps(model, spelling="p r i c e")[1:]
    assert count_exact_prompts(continued, model) == 0
