"""How often the cause of a failed episode is named rightly: class, owner and culprit.

    python benchmarks/attribution.py [--quick] [--airline FILE] [--annotated FILE]

Injected faults: one fault of a known kind goes into an episode of an airline agent, and the episode is cut off where
the fault leaves it (``fatal``), or goes on as it did (``recovered``: only what the episode got over, in an episode that
succeeded). Right means that class, owner and the span to blame are all those of the fault; a recovered fault must be
called recovered besides. The episodes' own tool errors stay in them. Without the file, made-up episodes of the same
form are used.

Annotated failures: people marked the agent and the step that went wrong in transcripts of several agents. Named
baselines: always the agent with the most messages, and always the second message. The rules are not fitted to them.
"""

import argparse
import gzip
import json
import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Final

import polars as pl
from airline.faults import APOLOGIES, FATAL, RECOVERABLE, Fault, Truth
from airline.script import Message, Script, Turn, read_scripts, says
from airline.spans import SECOND_NS, START_NS, Place, call_span, identity, score, span, tool_span

from spanloop.converters import convert, frames

DATA: Final = Path(__file__).parents[2] / "shared" / "data"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer episodes; under a minute")
    parser.add_argument("--airline", type=Path, default=DATA / "tau_airline" / "trajectories.jsonl.gz")
    parser.add_argument("--annotated", type=Path, default=DATA / "who_and_when" / "failures.jsonl.gz")
    options = parser.parse_args()
    ratios = injected(read_scripts(options.airline), quick=options.quick)
    if options.annotated.exists():
        ratios |= annotated(options.annotated)
    else:
        print(f"annotated failures: skipped, no file {options.annotated}")
    print("ratio " + " ".join(f"{name}={value:.3f}" for name, value in ratios.items()))


# --- injected faults ---


def injected(scripts: Sequence[Script], *, quick: bool) -> dict[str, float]:
    """Inject every kind of fault, convert, compare."""
    every = 4 if quick else 1
    story = Story()
    for kind, fault in FATAL.items():
        for number, script in enumerate(scripts[::every]):
            _inject(story, kind, fault, script, number, is_fatal=True)
    for kind in RECOVERABLE:
        for number, script in enumerate([each for each in scripts if each.reward == 1.0][::every]):
            _inject(story, kind, FATAL[kind], script, number, is_fatal=False)
    right, parts = _judge(story)
    print(f"\ninjected faults: {len(story.truths)} episodes, {len(FATAL)} kinds, {len(scripts)} airline episodes")
    total = Counter(kind for kind, *_ in story.truths.values())
    for kind in total:
        print(f"  {kind:<34} {right[kind] / total[kind]:6.1%} of {total[kind]}")
    count = len(story.truths)
    return {
        "injected": sum(right.values()) / count,
        **{f"injected_{name}": parts[name] / count for name in ("class", "owner", "culprit")},
    }


def _inject(story: "Story", kind: str, fault: Fault, script: Script, number: int, *, is_fatal: bool) -> None:
    rng = random.Random(f"{kind} {number} {is_fatal}")
    places = [index for index, turn in enumerate(script.turns) if turn.call and turn.answer is not None]
    if not places:
        return
    changed, place = deepcopy(script), rng.choice(places)
    if is_fatal:
        changed.turns = changed.turns[: place + 1]
        changed.turns[place].then = []
        changed.reward = 0.0
    else:
        again = deepcopy(changed.turns[place])
        changed.turns[place].then = []
        changed.turns.insert(place + 1, again)
    truth = fault(rng, changed, place)
    if (
        is_fatal
        and changed.raised is None
        and len(changed.turns) == place + 1
        and changed.turns[place].answer is not None
    ):
        changed.turns.append(Turn(says(rng.choice(APOLOGIES))))
    name = kind if is_fatal else f"{kind} (recovered)"
    story.tell(changed, name, truth, is_fatal=is_fatal)


def _judge(story: "Story") -> tuple[Counter[str], Counter[str]]:
    """(right episodes by kind, right class, owner and culprit by part)."""
    right: Counter[str] = Counter()
    parts: Counter[str] = Counter()
    found = {row["trace_id"]: row for row in story.verdicts()}
    for trace, (kind, truth, culprit, is_fatal) in story.truths.items():
        row = found.get(trace, {})
        checks = {
            "class": row.get("error_class") == truth.error_class,
            "owner": row.get("owner") == truth.owner,
            "culprit": row.get("span_id") == culprit,
        }
        if not is_fatal:
            own = [failure for failure in story.recovered[trace] if failure["span_id"] == culprit]
            checks["class"] = not row and any(failure["error_class"] == truth.error_class for failure in own)
            checks["owner"] = any(failure["fault_owner"] == truth.owner for failure in own)
            checks["culprit"] = bool(own)
        right[kind] += all(checks.values())
        parts.update(name for name, is_right in checks.items() if is_right)
    return right, parts


class Story:
    """Scripts as spans, and what was done to each."""

    def __init__(self) -> None:
        self.truths: dict[str, tuple[str, Truth, str, bool]] = {}
        self.recovered: dict[str, list[Message]] = {}
        self._spans: list[Message] = []
        self._scores: list[Message] = []

    def tell(self, script: Script, kind: str, truth: Truth, *, is_fatal: bool) -> None:
        """Write one episode as one trace."""
        trace = f"{len(self.truths) + 1:032x}"
        root = f"{trace[-8:]}{'f' * 8}"
        seen = list(script.opening)
        now = START_NS
        for number, turn in enumerate(script.turns):
            self._spans.append(call_span(Place(trace, identity(trace, number), root, now), seen, turn, script.tools))
            now += SECOND_NS
            if turn.said is None:
                continue
            seen = [*seen, turn.said]
            if turn.call and (turn.answer is not None or turn.tool_raised):
                self._spans.append(tool_span(Place(trace, identity(trace, number, is_tool=True), root, now), turn))
                now += SECOND_NS
            if turn.call and turn.answer is not None:
                answer = {"type": "tool_call_response", "id": turn.call["id"], "response": turn.answer}
                seen = [*seen, {"role": "tool", "parts": [answer]}]
            seen = [*seen, *turn.then]
        values = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "airline"}
        self._spans.append(
            span(Place(trace, root, "", START_NS, now - START_NS), "invoke_agent", values, script.raised)
        )
        if script.reward is not None:
            self._scores.append(score(trace, script.reward))
        self.truths[trace] = (kind, truth, _culprit(trace, root, truth), is_fatal)

    def verdicts(self) -> list[Message]:
        """Convert; the root of what decided each episode, and aside what each got over."""
        deciding, got_over = _deciding(self._spans, self._scores)
        self.recovered = {trace: [] for trace in self.truths}
        for row in got_over:
            self.recovered[row["trace_id"]].append(row)
        return deciding


def _deciding(spans: Sequence[Message], scores: Sequence[Message]) -> tuple[list[Message], list[Message]]:
    """(the root of what decided each episode, the failures that one got over)."""
    schema = {name: pl.Int64() if name in {"Timestamp", "IngestedAt"} else t for name, t in frames.SPANS.items()}
    frame = pl.DataFrame(spans, schema=schema).with_columns(
        pl.col("Timestamp").cast(frames.TIME_NS), pl.col("IngestedAt").cast(frames.TIME_US)
    )
    judged = pl.DataFrame(scores).with_columns(pl.col("scored_at").cast(frames.TIME_NS))
    failures = convert(frame, scores=judged, generations=frames.empty(frames.GENERATIONS)).failures
    open_ones = failures.filter(~pl.col("is_recovered")).unique("trace_id", keep="last", maintain_order=True)
    roots = [
        {"trace_id": row["trace_id"], **json.loads(row["evidence"])["chain"][0]}
        for row in open_ones.iter_rows(named=True)
    ]
    return roots, failures.filter(pl.col("is_recovered")).to_dicts()


def _culprit(trace: str, root: str, truth: Truth) -> str:
    return root if truth.where == "program" else identity(trace, truth.turn, is_tool=truth.where == "tool")


# --- annotated failures ---


def annotated(path: Path) -> dict[str, float]:
    """Transcripts as spans of several agents with reward 0: agent and step as the rules name them, and baselines."""
    with gzip.open(path, "rt") as lines:
        found = [json.loads(line) for line in lines]
    spans: list[Message] = []
    for number, each in enumerate(found):
        spans += _transcript(f"{number + 1:032x}", each["history"])
    scores = [score(f"{number + 1:032x}", 0.0) for number in range(len(found))]
    named = {row["trace_id"]: row for row in _deciding(spans, scores)[0]}
    hits: Counter[str] = Counter()
    for number, each in enumerate(found):
        history, agent, step = each["history"], each["mistake_agent"], int(each["mistake_step"])
        row = named.get(f"{number + 1:032x}")
        guess = int(row["span_id"][9:], 16) - 1 if row else -1
        speakers = [message["name"] for message in history if message["name"] != TERMINAL]
        often = Counter(speakers).most_common(1)[0][0]
        hits["agent"] += row is not None and history[guess]["name"] == agent
        hits["step"] += guess == step
        hits["agent_of_most_frequent"] += often == agent
        hits["step_of_second_step"] += step == 1
        hits["agent_of_second_step"] += len(history) > 1 and history[1]["name"] == agent
        hits["step_of_most_frequent"] += next(n for n, m in enumerate(history) if m["name"] == often) == step
        hits[f"class {row['error_class'] if row else 'none'}"] += 1
    count = len(found)
    print(
        f"\nannotated failures: {count} transcripts, "
        + ", ".join(f"{n}: {c}" for n, c in hits.items() if n[:5] == "class")
    )
    print(f"  {'':<34} {'agent':>6} {'step':>6}")
    for title, suffix in (
        ("rules", ""),
        ("most frequent agent", "_of_most_frequent"),
        ("second step", "_of_second_step"),
    ):
        print(f"  {title:<34} {hits['agent' + suffix] / count:6.1%} {hits['step' + suffix] / count:6.1%}")
    return {f"annotated_{name}": hits[name] / count for name in ("agent", "step")} | {
        "most_frequent_agent": hits["agent_of_most_frequent"] / count,
        "second_step": hits["step_of_second_step"] / count,
    }


TERMINAL: Final = "Computer_terminal"


def _transcript(trace: str, history: Sequence[Message]) -> Iterator[Message]:
    """One model call a message; what the terminal answered to a message with code is a tool's answer.

    The first message is the task; span ids carry the message's number.
    """
    seen: list[Message] = []
    for number, message in enumerate(history):
        name, text = message["name"], message["content"]
        after = history[number + 1] if number + 1 < len(history) else None
        if number == 0 or name == TERMINAL:
            if not (seen and seen[-1]["role"] == "tool"):
                seen = [*seen, {"role": "user", "parts": [{"type": "text", "content": text}]}]
            continue
        said = says(text)
        runs = (
            after is not None and after["name"] == TERMINAL and "```" in text and "no code from" not in after["content"]
        )
        if runs:
            code = "\n".join(re.findall(r"```\w*\n(.*?)```", text, re.DOTALL))
            call = {"type": "tool_call", "id": f"run-{number}", "name": "run_code", "arguments": {"code": code}}
            said["parts"].append(call)
        values = {
            "gen_ai.operation.name": "chat",
            "gen_ai.agent.name": name,
            "gen_ai.conversation.id": trace,
            "gen_ai.request.model": "agents",
            "gen_ai.response.finish_reasons": ["tool_call" if runs else "stop"],
            "gen_ai.input.messages": list(seen),
            "gen_ai.output.messages": [said],
        }
        now = START_NS + number * SECOND_NS
        own = f"{trace[-8:]}{number + 1:08x}"
        yield span(Place(trace, own, "", now), "chat", values)
        seen = [*seen, said]
        if runs and after is not None:
            output = after["content"]
            failed = re.match(r"exitcode: [^0]", output) is not None
            tool = {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": "run_code",
                "gen_ai.tool.call.id": f"run-{number}",
                "gen_ai.tool.call.result": output,
            }
            raised = ("CodeError", output) if failed else None
            place = Place(trace, f"{trace[-8:]}f{number + 1:07x}", "", now + SECOND_NS // 2, SECOND_NS // 4)
            yield span(place, "execute_tool", tool, raised)
            answer = {"type": "tool_call_response", "id": f"run-{number}", "response": output}
            seen = [*seen, {"role": "tool", "parts": [answer]}]


if __name__ == "__main__":
    main()
