"""How often the cause of a failed episode is named rightly: class, owner and culprit.

    python benchmarks/attribution.py [--quick] [--airline FILE] [--annotated FILE]

Injected faults: one fault of a known kind goes into an episode of an airline agent, and the episode is cut off where
the fault leaves it (``fatal``), or goes on as it did (``recovered``: only what the episode got over, in an episode that
succeeded). Right means that class, owner and the span to blame are all those of the fault; a recovered fault must be
called recovered besides. The episodes' own tool errors stay in them. Nothing is injected into them once more: then
nothing may be open where an episode succeeded, and no tool or surroundings be blamed where it failed, for none was at
fault; and where an episode did what its task's solution does not, the first such step should be named. Without the
file, made-up episodes of the same form are used.

Annotated failures: people marked the agent and the step that went wrong in transcripts of several agents. Named
baselines: always the agent with the most messages (and its first one), and always the second message. The transcripts
are in two halves, by a hash of the question: one was read when the rules were made, the other was only scored.
"""

import argparse
import gzip
import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from hashlib import blake2b
from pathlib import Path
from typing import Final, NamedTuple

import polars as pl
from airline.fault import APOLOGIES, Truth
from airline.faults import FATAL, FAULTS, RECOVERABLE
from airline.script import Message, Script, Turn, read_scripts, says, wrong_deeds
from airline.spans import SECOND_NS, START_NS, Place, identity, score, span
from airline.story import Story, Told

from spanloop.converters import convert, frames

DATA: Final = Path(__file__).parents[2] / "shared" / "data"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer episodes; under a minute")
    parser.add_argument("--airline", type=Path, default=DATA / "tau_airline" / "trajectories.jsonl.gz")
    parser.add_argument("--annotated", type=Path, default=DATA / "who_and_when" / "failures.jsonl.gz")
    options = parser.parse_args()
    scripts = read_scripts(options.airline)
    ratios = injected(scripts, quick=options.quick) | untouched(scripts)
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
    for kind in FATAL:
        for number, script in enumerate(scripts[::every]):
            _inject(story, kind, script, number, is_fatal=True)
    for kind in RECOVERABLE:
        for number, script in enumerate([each for each in scripts if each.reward == 1.0][::every]):
            _inject(story, kind, script, number, is_fatal=False)
    told = story.told
    deciding, failures = _deciding(story.spans, story.scores)
    verdicts = {trace: _judged(told[trace], deciding.get(trace), failures.get(trace, ())) for trace in told}
    print(f"\ninjected faults: {len(told)} episodes, {len(FAULTS)} kinds, {len(scripts)} airline episodes")
    print(f"  {'':<46} {'right':>6} {'class':>6} {'owner':>6} {'culprit':>7}   of")
    for kind in dict.fromkeys(each.kind for each in told.values()):
        found = [verdicts[trace] for trace, each in told.items() if each.kind == kind]
        shares = [sum(part) / len(found) for part in zip(*(each.parts for each in found), strict=True)]
        print(f"  {kind:<46} {' '.join(f'{share:6.1%}' for share in shares)}  {len(found):4}")
    shares = [sum(part) / len(told) for part in zip(*(each.parts for each in verdicts.values()), strict=True)]
    names = ("injected", "injected_class", "injected_owner", "injected_culprit")
    return dict(zip(names, shares, strict=True)) | _groups(told, verdicts) | _with_less(story)


def _inject(story: Story, kind: str, script: Script, number: int, *, is_fatal: bool) -> None:
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
    truth = FAULTS[kind](rng, changed, place)
    is_over = changed.raised is not None or len(changed.turns) > place + 1 or changed.turns[place].answer is None
    if is_fatal and not is_over:
        changed.turns.append(Turn(says(rng.choice(APOLOGIES))))
    story.tell(changed, kind if is_fatal else f"{kind} (recovered)", truth, is_fatal=is_fatal)


def untouched(scripts: Sequence[Script]) -> dict[str, float]:
    """The share of episodes without an injected fault of which nothing false is said; of wrong deeds that are named."""
    story = Story()
    for script in scripts:
        story.tell(script, "nothing", Truth("", "policy", 0, "call"), is_fatal=script.reward == 0.0)
    deciding = _deciding(story.spans, story.scores)[0]
    owners = {trace: deciding[trace]["fault_owner"] if trace in deciding else "" for trace in story.told}
    right = sum(owners[trace] == ("policy" if each.is_fatal else "") for trace, each in story.told.items())
    print(f"  nothing injected: {right} of {len(owners)} right, {dict(Counter(owners.values()))}")
    ratios = {"untouched": right / len(owners)}
    failed = [(trace, script) for trace, script in zip(story.told, scripts, strict=True) if script.reward == 0.0]
    wrong = {trace: turns for trace, script in failed if (turns := wrong_deeds(script))}
    if wrong:
        named = sum(deciding[trace]["span_id"] == identity(trace, turns[0]) for trace, turns in wrong.items())
        last = sum(len(script.turns) - 1 == wrong[trace][0] for trace, script in failed if trace in wrong)
        print(f"  wrong deeds: of {len(wrong)} the first is named in {named}; the last step would be it in {last}")
        ratios |= {"wrong_deed": named / len(wrong), "last_step": last / len(wrong)}
    return ratios


class Judged(NamedTuple):
    """One episode's verdict beside the truth."""

    parts: tuple[bool, bool, bool, bool]
    """All right; class, owner and culprit."""
    fingerprint: str
    """Of the failure that is the fault's; empty when none is."""
    tool: str


def _judged(told: Told, deciding: Message | None, failures: Sequence[Message]) -> Judged:
    if told.is_fatal:
        own = [deciding] if deciding else []
    else:
        own = [] if deciding else [each for each in failures if each["span_id"] == told.culprit]
    same_class = [each for each in own if each["error_class"] == told.truth.error_class]
    parts = (
        bool(same_class),
        any(each["fault_owner"] == told.truth.owner for each in own),
        any(each["span_id"] == told.culprit for each in own),
    )
    named = (same_class or own or [{"fingerprint": "", "tool_name": ""}])[0]
    return Judged((all(parts), *parts), str(named["fingerprint"]), str(named["tool_name"]))


def _groups(told: Mapping[str, Told], verdicts: Mapping[str, Judged]) -> dict[str, float]:
    """How well fingerprints group: of the faults that were named rightly.

    Purity: the share that lies in a group whose class, owner and tool are mostly its own. Completeness: the share that
    lies in the largest group of its kind, wording and tool.
    """
    seen = [
        (
            verdict.fingerprint,
            (*told[trace].truth[:2], verdict.tool),
            (told[trace].kind, told[trace].wording, verdict.tool),
        )
        for trace, verdict in verdicts.items()
        if verdict.parts[0]
    ]
    by_group: dict[str, Counter[tuple[str, ...]]] = defaultdict(Counter)
    by_fault: dict[tuple[object, ...], Counter[str]] = defaultdict(Counter)
    for fingerprint, what, fault in seen:
        by_group[fingerprint][what] += 1
        by_fault[fault][fingerprint] += 1
    purity = sum(max(each.values()) for each in by_group.values()) / len(seen)
    completeness = sum(max(each.values()) for each in by_fault.values()) / len(seen)
    print(f"  fingerprints: {len(by_group)} groups of {len(by_fault)} faults (kind, wording, tool)")
    return {"group_purity": purity, "group_completeness": completeness}


def _with_less(story: Story) -> dict[str, float]:
    """The share of faults whose class is right where less was recorded, and whether the policy is to blame or not.

    Of every fourth episode.
    """
    told = {trace: each for number, (trace, each) in enumerate(story.told.items()) if number % 4 == 0}
    spans = [each for each in story.spans if each["TraceId"] in told]
    scores = [each for each in story.scores if each["trace_id"] in told]
    undefined = [
        {**each, "SpanAttributes": [v for v in each["SpanAttributes"] if v["key"] != _TOOLS]} for each in spans
    ]
    untold = [each for each in spans if each["SpanName"] != "execute_tool"]
    shares: dict[str, float] = {}
    for name, less in (("no_definitions", undefined), ("no_tool_spans", untold)):
        deciding, failures = _deciding(less, scores)
        right, fair = 0, 0
        for trace, each in told.items():
            decided = deciding.get(trace)
            found = [decided] if decided else failures.get(trace, [])
            seen = found if each.is_fatal == bool(decided) else []
            right += any(failure["error_class"] == each.truth.error_class for failure in seen)
            fair += any((failure["fault_owner"] == "policy") == (each.truth.owner == "policy") for failure in seen)
        shares |= {name: right / len(told), f"{name}_blame": fair / len(told)}
        print(f"  {name.replace('_', ' ')}: of {len(told)} class right in {right}, the policy's or not in {fair}")
    return shares


_TOOLS: Final = "gen_ai.tool.definitions"


def _deciding(
    spans: Sequence[Message], scores: Sequence[Message]
) -> tuple[dict[str, Message], dict[str, list[Message]]]:
    """Trace → the failure that decided its episode; trace → all of its failures."""
    schema = {name: pl.Int64() if name in {"Timestamp", "IngestedAt"} else t for name, t in frames.SPANS.items()}
    frame = pl.DataFrame(spans, schema=schema).with_columns(
        pl.col("Timestamp").cast(frames.TIME_NS), pl.col("IngestedAt").cast(frames.TIME_US)
    )
    judged = pl.DataFrame(scores).with_columns(pl.col("scored_at").cast(frames.TIME_NS))
    failures: dict[str, list[Message]] = defaultdict(list)
    for row in convert(frame, scores=judged, generations=frames.empty(frames.GENERATIONS)).failures.to_dicts():
        failures[row["trace_id"]].append(row)
    deciding: dict[str, Message] = {}
    for trace, rows in failures.items():
        open_ones = [row for row in rows if not row["is_recovered"]]
        if open_ones:
            root = json.loads(open_ones[-1]["evidence"])["chain"][0]
            deciding[trace] = next(
                row
                for row in open_ones
                if (row["span_id"], row["error_class"]) == (root["span_id"], root["error_class"])
            )
    return deciding, failures


# --- annotated failures ---


def annotated(path: Path) -> dict[str, float]:
    """Transcripts as spans of several agents with reward 0: agent and step as the rules name them, and baselines."""
    with gzip.open(path, "rt") as lines:
        found = [json.loads(line) for line in lines]
    spans: list[Message] = []
    for number, each in enumerate(found):
        spans += _transcript(f"{number + 1:032x}", each["history"])
    scores = [score(f"{number + 1:032x}", 0.0) for number in range(len(found))]
    deciding = _deciding(spans, scores)[0]
    named = [deciding.get(f"{number + 1:032x}") for number in range(len(found))]
    classes = Counter(row["error_class"] if row else "none" for row in named)
    print(f"\nannotated failures: {len(found)} transcripts, " + ", ".join(f"{n}: {c}" for n, c in classes.items()))
    guesses: dict[str, list[int]] = {
        "rules": [int(row["span_id"][9:], 16) - 1 if row else -1 for row in named],
        "most frequent agent": [_first_of_most_frequent(each["history"]) for each in found],
        "second step": [min(1, len(each["history"]) - 1) for each in found],
    }
    was_read = [blake2b(each["question"].encode(), digest_size=8).digest()[0] % 2 == 0 for each in found]
    parts: dict[str, Callable[[int], bool]] = {
        "all": lambda _: True,
        "the half that was read": lambda number: was_read[number],
        "the half that was only scored": lambda number: not was_read[number],
    }
    shares: dict[tuple[str, str], tuple[float, float]] = {}
    for part, belongs in parts.items():
        numbers = [number for number in range(len(found)) if belongs(number)]
        print(f"  {f'{part}: {len(numbers)}':<34} {'agent':>6} {'step':>6}")
        for title, guess in guesses.items():
            agent = sum(_speaker(found[n], guess[n]) == found[n]["mistake_agent"] for n in numbers)
            step = sum(guess[n] == int(found[n]["mistake_step"]) for n in numbers)
            shares[part, title] = (agent / max(1, len(numbers)), step / max(1, len(numbers)))
            print(f"    {title:<32} {shares[part, title][0]:6.1%} {shares[part, title][1]:6.1%}")
    everything, scored = shares["all", "rules"], shares["the half that was only scored", "rules"]
    return {
        "annotated_agent": everything[0],
        "annotated_step": everything[1],
        "scored_only_agent": scored[0],
        "scored_only_step": scored[1],
        "most_frequent_agent": shares["all", "most frequent agent"][0],
        "second_step": shares["all", "second step"][1],
    }


def _speaker(failure: Message, step: int) -> str:
    return str(failure["history"][step]["name"]) if step >= 0 else ""


def _first_of_most_frequent(history: Sequence[Message]) -> int:
    speakers = [message["name"] for message in history]
    often = Counter(name for name in speakers if name != TERMINAL).most_common(1)[0][0]
    return speakers.index(often)


TERMINAL: Final = "Computer_terminal"
_CODE: Final = re.compile(r"```\w*\n(.*?)```", re.DOTALL)


def _transcript(trace: str, history: Sequence[Message]) -> Iterator[Message]:
    """One model call a message; code that the terminal ran is a tool call, and what it answered the tool's answer.

    The first message is the task, unless its code was run: then it is its agent's own. Span ids carry the message's
    number.
    """
    seen: list[Message] = []
    for number, message in enumerate(history):
        name, text = message["name"], message["content"]
        after = history[number + 1] if number + 1 < len(history) else None
        runs = (
            after is not None and after["name"] == TERMINAL and "```" in text and "no code from" not in after["content"]
        )
        if name == TERMINAL or (number == 0 and not runs):
            if not (seen and seen[-1]["role"] == "tool"):
                seen = [*seen, {"role": "user", "parts": [{"type": "text", "content": text}]}]
            continue
        said = says(_CODE.sub("", text) if runs else text)
        if number == 0:
            seen = [{"role": "user", "parts": [{"type": "text", "content": text[: text.find("```")]}]}]
        if runs:
            code = "\n".join(_CODE.findall(text))
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
