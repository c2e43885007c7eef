import json
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st

from spanloop.converters.exports import KINDS, ExportOptions, Manifest, Pinned, export
from spanloop.foundation.errors import ConversionError
from spanloop.messages import parse_messages

from .converters_world import OPENING, TOOLS, World, answers, asks, exported_transitions, text, trace_id

Json = dict[str, Any]


def attempt(world: World, name: str, *said: Json, reward: float | None = 1.0, task: str = "task") -> None:
    """One episode of a task; tool calls are answered with their ids."""
    seen = list(OPENING)
    for message in said:
        world.call(seen, message, trace=trace_id(name), attributes={"spanloop.task.id": task})
        seen.append(message)
        seen += [answers(part["id"], f"for {part['id']}") for part in message["parts"] if part["type"] == "tool_call"]
    if reward is not None:
        world.score(reward, trace_id=trace_id(name))


def transitions(world: World) -> pl.DataFrame:
    """As the export's query gives them."""
    return exported_transitions(world.convert())


def lines(kind: str, rows: pl.DataFrame, **options: Any) -> tuple[list[Json], int, Json]:
    made = KINDS[kind].make(rows, ExportOptions(**options))
    assert made.accepted + sum(made.rejected.values()) == rows.height
    assert isinstance(made.rows, list)
    return [json.loads(line) for line in made.rows], made.accepted, dict(made.rejected)


# --- conversations for fine-tuning


def test_one_line_a_conversation_with_every_action_trained_on_once() -> None:
    world = World()
    attempt(world, "a", asks("c1", content="Let me see."), text("assistant", "Sunny."))
    found, accepted, rejected = lines("openai", transitions(world))
    assert (len(found), accepted, rejected) == (1, 2, {})
    function = {"name": "search", "arguments": '{"query":"c1"}'}
    assert found[0]["messages"] == [
        {"role": "system", "content": "You are helpful."},
        {"role": "user", "content": "What is the weather in Paris?"},
        {
            "role": "assistant",
            "content": "Let me see.",
            "tool_calls": [{"id": "c1", "type": "function", "function": function}],
            "weight": 1,
        },
        {"role": "tool", "tool_call_id": "c1", "content": "for c1"},
        {"role": "assistant", "content": "Sunny.", "weight": 1},
    ]
    definition = {key: value for key, value in TOOLS[0].items() if key != "type"}
    assert found[0]["tools"] == [{"type": "function", "function": definition}]
    assert found[0]["parallel_tool_calls"] is False


def test_branches_share_their_beginning_and_train_on_it_once() -> None:
    world = World()
    attempt(world, "a", asks("c1"), text("assistant", "Sunny."))
    seen = [*OPENING, asks("c1"), answers("c1", "for c1")]
    world.call(seen, text("assistant", "Bright."), trace=trace_id("a"))
    found, accepted, _ = lines("openai", transitions(world))
    weights = [[m["weight"] for m in line["messages"] if m["role"] == "assistant"] for line in found]
    assert (accepted, weights) == (3, [[1, 1], [0, 1]])


def test_what_may_not_be_trained_on_is_context_at_most() -> None:
    world = World()
    seen = list(OPENING)
    world.call(seen, asks("c1"), trace=trace_id("a"), dropped=1)
    world.call([*seen, asks("c1"), answers("c1", "x")], text("assistant", "Sunny."), trace=trace_id("a"))
    world.score(1.0, trace_id=trace_id("a"))
    found, accepted, rejected = lines("openai", transitions(world))
    assert (accepted, rejected) == (1, {"dropped_attributes": 1})
    assert [m["weight"] for m in found[0]["messages"] if m["role"] == "assistant"] == [0, 1]


def test_rewards_choose_the_episodes() -> None:
    world = World()
    attempt(world, "a", text("assistant", "good"), reward=0.8)
    attempt(world, "b", text("assistant", "poor"), reward=0.2)
    attempt(world, "c", text("assistant", "unknown"), reward=None)
    rows = transitions(world)
    assert lines("openai", rows)[1:] == (1, {"not_successful": 2})
    assert lines("openai", rows, min_reward=0.1)[1:] == (2, {"reward_too_low": 1})


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (asks("c1", arguments="{broken"), "invalid_arguments"),
        ({"role": "assistant", "parts": [{"type": "image", "uri": "x"}]}, "unsupported_part"),
        ({"role": "critic", "parts": [{"type": "text", "content": "x"}]}, "unknown_role"),
        ({"role": "assistant", "parts": []}, "missing_content"),
    ],
)
def test_what_the_chat_form_cannot_carry_is_rejected_by_name(said: Json, reason: str) -> None:
    world = World()
    attempt(world, "a", said)
    assert lines("openai", transitions(world))[1:] == (0, {reason: 1})


def test_a_call_that_nobody_answered_is_rejected_but_where_it_ends_the_conversation() -> None:
    world = World()
    attempt(world, "a", asks("c1"))
    world.call([*OPENING, asks("c1"), text("user", "Well?")], text("assistant", "Sunny."), trace=trace_id("a"))
    assert lines("openai", transitions(world))[1:] == (1, {"unanswered_tool_call": 1})


def test_missing_ids_are_numbered() -> None:
    world = World()
    both = asks("")
    both["parts"].append({"type": "tool_call", "name": "search", "arguments": {"query": "y"}})
    seen = [*OPENING, both, answers("", "1"), answers("", "2")]
    world.call(seen, text("assistant", "Sunny."), trace=trace_id("a"))
    world.score(1.0, trace_id=trace_id("a"))
    (line,) = lines("openai", transitions(world))[0]
    asked = [call["id"] for message in line["messages"] for call in message.get("tool_calls", [])]
    told = [message["tool_call_id"] for message in line["messages"] if message["role"] == "tool"]
    assert asked == told
    assert len(set(asked)) == 2


# --- preference pairs


def test_the_best_action_of_a_state_is_preferred_to_the_worst() -> None:
    world = World()
    for name, said, reward in (("a", "good", 1.0), ("b", "poor", 0.0), ("c", "poor", 0.4), ("d", "fair", 0.5)):
        attempt(world, name, text("assistant", said), reward=reward)
    attempt(world, "e", text("assistant", "good"), reward=None)
    attempt(world, "f", asks("c1"), reward=0.9, task="other")
    (pair,), accepted, rejected = lines("preferences", transitions(world))
    assert (accepted, rejected) == (3, {"between": 1, "no_alternative": 1, "no_reward": 1})
    assert pair["prompt"][-1] == {"role": "user", "content": "What is the weather in Paris?"}
    assert pair["chosen"] == [{"role": "assistant", "content": "good"}]
    assert pair["rejected"] == [{"role": "assistant", "content": "poor"}]
    assert (pair["score_chosen"], pair["score_rejected"]) == (1.0, 0.2)
    assert lines("preferences", transitions(world), margin=0.9)[0] == []


def test_a_state_with_one_action_or_without_a_difference_gives_no_pair() -> None:
    world = World()
    attempt(world, "a", asks("c1"), text("assistant", "x"), reward=1.0)
    attempt(world, "b", asks("c1"), text("assistant", "y"), reward=1.0)
    assert lines("preferences", transitions(world)) == ([], 0, {"no_alternative": 2, "no_margin": 2})


# --- tables


def test_transitions_as_a_table_with_credit() -> None:
    world = World()
    attempt(world, "a", asks("c1"), text("assistant", "x"), reward=1.0)
    attempt(world, "b", asks("c1"), text("assistant", "y"), reward=0.0)
    world.call(OPENING, None, trace=trace_id("c"), error="Error code: 429")
    made = KINDS["parquet"].make(transitions(world), ExportOptions(credit="returns", gamma=0.5))
    assert isinstance(made.rows, pl.DataFrame)
    assert (made.accepted, dict(made.rejected)) == (4, {"request_failed": 1})
    assert made.rows.sort("reward", "step", descending=[True, False])["credit"].to_list() == [0.5, 1.0, 0.0, 0.0]
    assert json.loads(made.rows.item(0, "reward_breakdown")).keys() == {"reward"}
    assert not any(isinstance(dtype, pl.Map) for dtype in made.rows.dtypes)


def trajectories(world: World) -> pl.DataFrame:
    converted = world.convert()
    services = converted.episodes.select("episode_id", "service_name")
    states = converted.transitions.select("episode_id", "state", first_step="step")
    return converted.trajectories.join(services, on="episode_id").join(states, on=["episode_id", "first_step"])


def test_token_rows_are_aligned_and_grouped() -> None:
    world = World()
    for number, reward in enumerate((1.0, None)):
        attempt(world, f"a{number}", text("assistant", "x"), reward=reward)
        world.capture([1, 2, 3], [4, 5], response_id=f"chatcmpl-{number + 1}")
    made = KINDS["verl"].make(trajectories(world), ExportOptions())
    assert isinstance(made.rows, pl.DataFrame)
    assert (made.accepted, dict(made.rejected)) == (1, {"no_reward": 1})
    old = trajectories(world).with_columns(reward=pl.lit(1e308))
    assert KINDS["verl"].make(old, ExportOptions())[1:] == (0, {"reward_out_of_range": 2})
    row = made.rows.row(0, named=True)
    assert (row["uid"], row["index"], row["data_source"], row["reward"]) == ("task", 0, "app", 1.0)
    assert (row["prompt_ids"], row["response_ids"], row["response_mask"]) == ([1, 2, 3], [4, 5], [1, 1])
    assert len(row["rollout_log_probs"]) == 2
    assert row["prompt"] == [
        {"role": "system", "content": "You are helpful."},
        {"role": "user", "content": "What is the weather in Paris?"},
    ]


# --- whatever comes


@for_all(st.text(st.characters(categories=None)), st.text(st.characters(categories=None)))
def test_any_text_goes_through_conversion_and_exports(one: str, other: str) -> None:
    """NUL and surrogates without a partner among them: they come out as U+FFFD."""
    world = World()
    said = [asks("c1", arguments={"query": one, other: [one]}, content=other), text("assistant", other + "x")]
    seen = [text("system", one), text("user", other)]
    for message in said:
        world.call(seen, message, trace=trace_id("a"), tools=[{**TOOLS[0], "description": one}])
        seen += [message, answers("c1", other)]
    world.score(1.0, trace_id=trace_id("a"))
    rows = transitions(world)
    made, accepted, _ = lines("openai", rows)
    assert accepted == 2
    whole, last = (each.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for each in (one, other))
    assert [message["content"] for message in made[0]["messages"][:2]] == [whole, last]
    called = made[0]["messages"][2]["tool_calls"][0]["function"]
    assert json.loads(called["arguments"]) == {"query": whole} | {last: [whole]}
    assert made[0]["messages"][3]["content"] == last
    assert made[0]["tools"][0]["function"]["description"] == whole
    for kind in ("preferences", "parquet"):
        exported = KINDS[kind].make(rows, ExportOptions())
        assert exported.accepted + sum(exported.rejected.values()) == rows.height


@pytest.mark.parametrize(
    "changes",
    [
        {"state": '[[{"role":"user","parts":[{"type":"text","content":"x"}]}]]'},
        {"state": "[1]"},
        {"state": '[{"role":"user"'},
        {"action": '{"role":"assistant"'},
        {"tools": "{"},
    ],
)
@pytest.mark.parametrize("kind", ["openai", "preferences"])
def test_a_row_whose_messages_cannot_be_read_is_counted_and_the_others_are_written(kind: str, changes: Json) -> None:
    """Converters up to 13 stored a list with an unpaired surrogate as one message of its own list."""
    world = World()
    attempt(world, "a", text("assistant", "x"), reward=1.0)
    attempt(world, "b", text("assistant", "y"), reward=0.0)
    attempt(world, "c", text("assistant", "z"), reward=1.0)
    rows = transitions(world)
    is_bad = pl.col("episode_id") == trace_id("c")
    damaged = rows.with_columns(
        pl.when(is_bad).then(pl.lit(value)).otherwise(name).alias(name) for name, value in changes.items()
    )
    made, accepted, rejected = lines(kind, damaged)
    assert (len(made), rejected["malformed_messages"]) == (1, 1)
    assert accepted == {"openai": 1, "preferences": 2}[kind]


def test_a_token_row_whose_state_cannot_be_read_is_counted_and_the_others_are_written() -> None:
    world = World()
    for number in range(2):
        attempt(world, f"a{number}", text("assistant", "x"))
        world.capture([1, 2, 3], [4, 5], response_id=f"chatcmpl-{number + 1}")
    rows = trajectories(world)
    state = pl.when(pl.int_range(pl.len()) == 0).then(pl.lit('[[{"role":"user"}]]')).otherwise("state")
    made = KINDS["verl"].make(rows.with_columns(state.alias("state")), ExportOptions())
    assert (made.accepted, len(made.rows), dict(made.rejected)) == (1, 1, {"malformed_messages": 1})


WORDS = st.sampled_from(["x", "y", "{", "é\n"])
NOTHING: Json = {"role": "assistant", "parts": []}
PICTURE: Json = {"role": "assistant", "parts": [{"type": "image"}]}


def says(said: str) -> Json:
    return text("assistant", said)


def calls(said: str) -> Json:
    return asks("c", arguments=said)


ACTIONS: st.SearchStrategy[Json] = st.one_of(
    st.builds(says, WORDS), st.builds(asks, WORDS), st.builds(calls, WORDS), st.sampled_from([NOTHING, PICTURE])
)


@for_all(
    st.lists(
        st.tuples(st.lists(ACTIONS, min_size=1, max_size=3), st.sampled_from([None, 0.0, 0.5, 1.0])),
        min_size=1,
        max_size=5,
    )
)
def test_every_row_is_accepted_or_rejected_and_every_line_reads_back(
    attempts: Sequence[tuple[list[Json], float | None]],
) -> None:
    world = World()
    for number, (said, reward) in enumerate(attempts):
        attempt(world, f"e{number}", *said, reward=reward)
    rows = transitions(world)
    for kind in ("openai", "preferences"):
        found, accepted, _ = lines(kind, rows)
        trained = sum(m.get("weight", 0) for line in found for m in line.get("messages", []))
        assert kind == "preferences" or trained == accepted
        for line in found:
            for messages in (line.get("messages", []), line.get("prompt", [])):
                parse_messages(json.dumps([m for m in messages if m["role"] != "tool"]))
        assert lines(kind, rows.reverse()) == (found, accepted, lines(kind, rows)[2])
    for method in ("", "group"):
        made = KINDS["parquet"].make(rows, ExportOptions(credit=method))
        assert made.accepted + sum(made.rejected.values()) == rows.height


# --- folders


def write(kind: str, batches: Sequence[pl.DataFrame], folder: Path) -> Manifest:
    return export(
        kind,
        KINDS[kind],
        iter(batches),
        folder,
        query={"task_prefix": ""},
        episodes=[Pinned("b", 2), Pinned("a", 1)],
        options=ExportOptions(),
    )


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def two_groups() -> list[pl.DataFrame]:
    world = World()
    attempt(world, "a", asks("c1"), text("assistant", "x"), task="one")
    attempt(world, "b", text("assistant", "y"), reward=0.0, task="two")
    attempt(world, "c", text("assistant", "z"), reward=1.0, task="two")
    rows = transitions(world)
    return [rows.filter(pl.col("group_id") == name) for name in ("one", "two")]


@pytest.mark.parametrize("kind", ["openai", "preferences", "parquet"])
def test_a_rerun_gives_the_same_bytes(kind: str, tmp_path: Path) -> None:
    batches = two_groups()
    manifest = write(kind, batches, tmp_path / "one")
    write(kind, [batch.reverse() for batch in batches], tmp_path / "two")
    first = files_of(tmp_path / "one")
    assert first == files_of(tmp_path / "two")
    write(kind, batches, tmp_path / "one")
    assert files_of(tmp_path / "one") == first
    stored = json.loads(first["manifest.json"])
    assert stored == json.loads(json.dumps(manifest._asdict()))
    assert stored["files"] == {
        name: sha256(content).hexdigest() for name, content in first.items() if name != "manifest.json"
    }
    assert stored["accepted"] + sum(stored["rejected"].values()) == sum(batch.height for batch in batches)
    assert stored["episodes"] == [["a", 1], ["b", 2]]
    assert not list(tmp_path.glob(".*"))


def test_a_table_is_a_hugging_face_dataset(tmp_path: Path) -> None:
    write("parquet", two_groups(), tmp_path / "out")
    assert sorted(files_of(tmp_path / "out")) == [
        "README.md",
        "data/train-00000.parquet",
        "data/train-00001.parquet",
        "manifest.json",
    ]
    found = pl.read_parquet(tmp_path / "out" / "data" / "*.parquet")
    assert found.height == 4
    parquet = pytest.importorskip("pyarrow.parquet")
    tables = [parquet.read_table(path) for path in sorted((tmp_path / "out" / "data").iterdir())]
    assert [table.num_rows for table in tables] == [2, 2]


def test_nothing_to_write_is_a_manifest_with_reasons(tmp_path: Path) -> None:
    world = World()
    attempt(world, "a", text("assistant", "x"), reward=0.0)
    manifest = write("openai", [transitions(world)], tmp_path / "out")
    assert (manifest.accepted, manifest.rejected, manifest.files) == (0, {"not_successful": 1}, {})
    assert sorted(files_of(tmp_path / "out")) == ["manifest.json"]


def test_a_folder_with_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    with pytest.raises(ConversionError, match="no export of spanloop's"):
        write("openai", two_groups(), tmp_path)
    assert files_of(tmp_path) == {"mine": b"x"}


def test_a_failure_leaves_the_earlier_export_and_nothing_else(tmp_path: Path) -> None:
    write("openai", two_groups(), tmp_path / "out")
    before = files_of(tmp_path)
    with pytest.raises(pl.exceptions.ColumnNotFoundError):
        write("openai", [*two_groups(), pl.DataFrame({"x": [1]})], tmp_path / "out")
    assert files_of(tmp_path) == before
    assert list(tmp_path.iterdir()) == [tmp_path / "out"]
