"""Episodes of a foreign model, and dialog files, become rows for sft; nothing of them is lost, nothing reaches policy
gradients."""

import json
import random
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from transformers import AutoTokenizer

from spanloop.foundation.errors import ConfigurationError, JobError
from spanloop.store import Store
from spanloop.training.dataset.export import export_dataset, select_dataset
from spanloop.training.dataset.manifest import DATA_NAME
from spanloop.training.dataset.text.dialog_files import parse_dialog_file, read_dialogs
from spanloop.training.models.base_model import BaseModelFacts, read_base_model
from spanloop.training.recipes.choices import Tokens
from spanloop.training.spec.job_spec import JobSpec

from ..recipe_kinds import flat_value
from ..training_seeding import REVISION, episode_row, failure_row, insert, trajectory, transition_row

SFT = JobSpec.of(kind="sft", base="tiny")
TOOLS = json.dumps([{"name": "warmth", "description": "Degrees", "parameters": {"type": "object", "properties": {}}}])


@pytest.fixture
def base(tiny_model: Path) -> BaseModelFacts:
    return read_base_model("tiny@v1", tiny_model)


def nobody(_: str) -> str | None:
    """A registry without versions."""
    return None


def text(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": content}]}


ASK, THANKS = text("user", "How warm is Oslo?"), text("user", "And Rome?")
CALL = {
    "role": "assistant",
    "parts": [{"type": "tool_call", "id": "c1", "name": "warmth", "arguments": {"city": "Oslo"}}],
}
RESULT = {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "7"}]}
ANSWER, OTHER = text("assistant", "7 degrees."), text("assistant", "12.")


def step_row(episode: str, step: int, state: list[Any], action: Any, **changes: Any) -> dict[str, object]:
    """A step of a foreign model: messages, no tokens."""
    texts = {"state": json.dumps(state), "action": json.dumps(action), "tools": TOOLS}
    row = transition_row(episode, "g", step, {}) | texts | {"policy_version": "", "model": "vendor-large"}
    return row | {"is_trainable": True, "untrainable_reason": "", "token_source": "none"} | changes


def seed_foreign(
    store: Store, episode: str = "foreign", reward: float | None = 1.0, end: Any = OTHER, **changes: Any
) -> None:
    """An episode of three steps that carry one another on; ``changes`` are of the second."""
    states = [[ASK], [ASK, CALL, RESULT], [ASK, CALL, RESULT, ANSWER, THANKS]]
    actions = [CALL, ANSWER, end]
    insert(store, "episodes", [episode_row(episode, "g", 0, reward)])
    insert(
        store,
        "transitions",
        [
            step_row(episode, number, state, action, **(changes if number == 1 else {}))
            for number, (state, action) in enumerate(zip(states, actions, strict=True))
        ],
    )


def select(store: Store, base: BaseModelFacts, **settings: Any) -> tuple[pl.DataFrame, dict[str, int]]:
    selection = select_dataset(store, SFT.changed(**settings), base, nobody)
    return selection.rows, dict(selection.row_tally.rejected)


def sampled(folder: Path, row: dict[str, Any]) -> list[str]:
    loader: Any = AutoTokenizer
    tokenizer = loader.from_pretrained(folder)
    spans = zip(row["sampled_starts"], row["sampled_ends"], strict=True)
    return [tokenizer.decode(row["response_token_ids"][start:end]) for start, end in spans]


def test_a_foreign_models_episode_is_one_row_for_sft(
    store: Store, tiny_model: Path, base: BaseModelFacts, tmp_path: Path
) -> None:
    seed_foreign(store)
    manifest = export_dataset(store, SFT, base, tokenizer_of=nobody, job_id="j", folder=tmp_path)
    (row,) = pl.read_parquet(tmp_path / DATA_NAME).to_dicts()
    assert row["source"] == "rendered"
    assert row["sampled_steps"] == [0, 1, 2]
    assert sampled(tiny_model, row)[1:] == ["7 degrees.<|im_end|>", "12.<|im_end|>"]
    assert '"arguments": {"city": "Oslo"}' in sampled(tiny_model, row)[0]
    assert manifest.sources == {"rendered": 1}
    assert [(each.episode_id, each.revision) for each in manifest.pinned] == [("foreign", REVISION)]


def test_policy_gradients_and_captured_tokens_do_not_take_text(store: Store, base: BaseModelFacts) -> None:
    seed_foreign(store)
    for changes in ({"tokens": Tokens.CAPTURED}, {"kind": "grpo"}):
        rows, rejected = select(store, base, **changes)
        assert rows.is_empty()
        assert rejected == {"no_trajectory": 1}


def test_captured_tokens_come_first_unless_text_is_asked_for(
    store: Store, tiny_model: Path, base: BaseModelFacts
) -> None:
    seed_foreign(store, policy_version="tiny@v1")
    insert(
        store, "trajectories",
        [trajectory(tiny_model, random.Random(0), episode="foreign", group="g", row_number=1, prompt=[5, 6])],
    )  # fmt: skip
    same = {"tiny@v1": base.tokenizer}.get
    assert select_dataset(store, SFT, base, same).rows["source"].to_list() == ["captured"]
    for tokenizer_of, tokens in ((nobody, Tokens.ANY), (same, Tokens.RENDERED)):
        spec = SFT.changed(tokens=tokens)
        assert select_dataset(store, spec, base, tokenizer_of).rows["source"].to_list() == ["rendered"]


def test_a_refused_step_is_counted_and_stays_context(store: Store, tiny_model: Path, base: BaseModelFacts) -> None:
    seed_foreign(store, is_trainable=False, untrainable_reason="redacted_content")
    rows, rejected = select(store, base)
    (row,) = rows.to_dicts()
    assert row["sampled_steps"] == [0, 2]
    assert sampled(tiny_model, row)[1] == "12.<|im_end|>"
    assert rejected == {"redacted_content": 1}


def test_text_of_a_step_whose_token_ids_have_no_log_probabilities_is_trained(
    store: Store, tiny_model: Path, base: BaseModelFacts
) -> None:
    seed_foreign(store, is_trainable=False, untrainable_reason="missing_logprobs")
    rows, rejected = select(store, base)
    (row,) = rows.to_dicts()
    assert (row["sampled_steps"], rejected) == ([0, 1, 2], {})
    assert sampled(tiny_model, row)[1] == "7 degrees.<|im_end|>"


def test_a_step_whose_thinking_the_template_leaves_out_is_context(store: Store, tiny_model: Path) -> None:
    thought = {"type": "reasoning", "content": "Cold there."}
    seed_foreign(store, end={**OTHER, "parts": [thought, *OTHER["parts"]]})
    template = (tiny_model / "chat_template.jinja").read_text()
    assert "reasoning_content" not in template
    rows, rejected = select(store, read_base_model("tiny@v1", tiny_model))
    assert rows["sampled_steps"].to_list() == [[0, 1]]
    assert rejected == {"template_without_reasoning": 1}


HALVES = ("cut \ud83d", "\udc00 low", "\ud83d\ud83d", "NUL \x00 and \ud83d")


@pytest.mark.parametrize("half", HALVES)
def test_an_unpaired_surrogate_of_an_older_row_is_the_replacement_character(
    store: Store, tiny_model: Path, base: BaseModelFacts, half: str
) -> None:
    seed_foreign(store, end=text("assistant", half))
    rows, rejected = select(store, base)
    (row,) = rows.to_dicts()
    whole = half.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert sampled(tiny_model, row)[-1] == f"{whole}<|im_end|>"
    assert not rejected


def test_a_state_that_is_no_list_of_messages_is_counted(store: Store, base: BaseModelFacts) -> None:
    """Converters up to 13 stored a list with an unpaired surrogate as one message."""
    seed_foreign(store)
    insert(store, "episodes", [episode_row("older", "g", 1, 1.0)])
    insert(store, "transitions", [step_row("older", 0, [[ASK]], ANSWER), step_row("older", 1, [ASK], OTHER)])
    rows, rejected = select(store, base)
    assert sorted(row["sampled_steps"] for row in rows.to_dicts()) == [[0, 1, 2], [1]]
    assert rejected == {"malformed_messages": 1}


def test_a_dialog_with_an_unpaired_surrogate_is_a_row_and_one_nested_too_deep_is_counted(
    store: Store, tiny_model: Path, base: BaseModelFacts, tmp_path: Path
) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": r'{"a": "\ud83d"}'}}
    dialog = {
        "messages": [
            {"role": "user", "content": "cut \ud83d"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "\udc00"},
            {"role": "assistant", "content": "yes \ud83d"},
        ]
    }
    file = tmp_path / "dialogs.jsonl"
    file.write_text(json.dumps(dialog) + "\n" + "[" * 100_000 + "\n" + json.dumps(dialog) + "\n")
    rows, rejected = select(store, base, dialogs=(str(file),))
    assert [sampled(tiny_model, row)[-1] for row in rows.to_dicts()] == ["yes \ufffd<|im_end|>"] * 2
    assert rejected["invalid_json"] == 1


def test_the_policys_mistakes_are_masked_in_text_too(store: Store, base: BaseModelFacts) -> None:
    seed_foreign(store)
    insert(store, "failures", [failure_row("foreign", 0, "policy", is_recovered=True)])
    rows, _ = select(store, base)
    (row,) = rows.to_dicts()
    start, end = row["sampled_starts"][0], row["sampled_ends"][0]
    assert not any(row["loss_mask"][start:end])
    assert (row["masked_steps"], sum(row["loss_mask"]) > 0) == (1, True)


def test_other_rules_hold_for_text(store: Store, base: BaseModelFacts) -> None:
    seed_foreign(store, reward=0.0)
    assert select(store, base)[1] == {"not_successful": 1}
    assert select(store, base, policy_version="tiny@v1")[1] == {"other_policy_version": 1}
    assert select(store, base, max_response_tokens=3)[1] == {"response_too_long": 1}


def write_lines(path: Path, *entries: Any) -> str:
    path.write_text("\n".join(entry if isinstance(entry, str) else json.dumps(entry) for entry in entries))
    return str(path)


OPENAI = {
    "messages": [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Ignore me.", "weight": 0},
        {"role": "user", "content": [{"type": "text", "text": "Again"}]},
        {"role": "assistant", "content": "Hi."},
    ]
}
SHAREGPT = {"conversations": [{"from": "human", "value": "Hello"}, {"from": "gpt", "value": "Hi."}]}
ALPACA = {"instruction": "Add.", "input": "1 + 1", "output": "2"}


def test_dialog_files_of_each_format_train_without_any_span(
    store: Store, tiny_model: Path, base: BaseModelFacts, tmp_path: Path
) -> None:
    path = write_lines(tmp_path / "dialogs.jsonl", OPENAI, SHAREGPT, ALPACA)
    spec = SFT.changed(dialogs=(path,), tokens=Tokens.NONE)
    manifest = export_dataset(store, spec, base, tokenizer_of=nobody, job_id="j", folder=tmp_path)
    rows = pl.read_parquet(tmp_path / DATA_NAME).sort("episode_id").to_dicts()
    assert [sampled(tiny_model, row) for row in rows] == [["Hi.<|im_end|>"], ["Hi.<|im_end|>"], ["2<|im_end|>"]]
    assert manifest.sources == {"dialog": 3}
    assert manifest.pinned == ()
    assert (manifest.dialogs[0].path, len(manifest.dialogs[0].sha256)) == (path, 64)


def test_broken_dialogs_are_counted_by_reason_and_cost_nothing_else(
    store: Store, base: BaseModelFacts, tmp_path: Path
) -> None:
    path = write_lines(
        tmp_path / "dialogs.jsonl",
        SHAREGPT,
        "{broken",
        "3",
        {"text": "?"},
        {"messages": [{"role": "alien", "content": "?"}]},
        {"messages": [{"role": "user", "content": "nobody answers"}]},
        {"messages": [{"role": "user", "content": [{"type": "image"}]}, {"role": "assistant", "content": "x"}]},
    )
    rows, rejected = select(store, base, dialogs=(path,))
    assert rows.height == 1
    assert rejected == {
        "invalid_json": 1,
        "no_object": 1,
        "unknown_format": 1,
        "malformed_dialog": 2,
        "no_trained_turn": 1,
    }
    assert [(entry.number, entry.reason) for entry in read_dialogs(Path(path))][1] == (2, "invalid_json")


def test_weights_repeat_or_thin_out_dialogs_the_same_way_each_time(
    store: Store, base: BaseModelFacts, tmp_path: Path
) -> None:
    path = write_lines(tmp_path / "dialogs.json", json.dumps([SHAREGPT] * 200))
    assert select(store, base, dialogs=(f"{path}=2",))[0].height == 400
    rows, rejected = select(store, base, dialogs=(f"{path}=0.5",))
    assert 60 < rows.height < 140
    assert rejected == {"left_out_by_weight": 200 - rows.height}
    chosen = rows["episode_id"].to_list()
    assert select(store, base, dialogs=(f"{path}=0.5",))[0]["episode_id"].to_list() == chosen
    assert select(store, base, dialogs=(f"{path}=0.5",), seed=1)[0]["episode_id"].to_list() != chosen


@pytest.mark.parametrize(("given", "message"), [("none.jsonl", "no dialog file"), ("here=0", "weight 0")])
def test_a_wrong_dialog_file_is_named(tmp_path: Path, given: str, message: str) -> None:
    (tmp_path / "here").touch()
    with pytest.raises(ConfigurationError, match=message):
        parse_dialog_file(str(tmp_path / given))


def test_without_rows_the_reasons_are_told(store: Store, base: BaseModelFacts, tmp_path: Path) -> None:
    seed_foreign(store, is_trainable=False, untrainable_reason="redacted_content")
    spec = SFT.changed(tokens=Tokens.CAPTURED)
    with pytest.raises(JobError, match="no_trajectory 1"):
        export_dataset(store, spec, base, tokenizer_of=nobody, job_id="j", folder=tmp_path)


def test_relative_paths_of_dialogs_are_those_of_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    spec = JobSpec.of(kind="sft", base="tiny", dialogs=("a.jsonl=0.5",))
    assert flat_value(spec, "dialogs") == (f"{tmp_path}/a.jsonl=0.5",)
    with pytest.raises(ValueError, match="dialogs: a sft setting"):
        JobSpec.of(base="tiny", dialogs=("a.jsonl",))
