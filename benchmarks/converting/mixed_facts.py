"""What must come of the production mix, and what did: so that no speed counts of work that is wrong.

A conversion's options are here, too, because a user's reward function is a part of the work.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final

import polars as pl
from converting.mixed_episodes import Episode

from spanloop.converters import Converted, Options
from spanloop.converters.rewards import Attempt, Judgement, NamedReward

_REWARD: Final = "thrift"


def thrift(attempt: Attempt) -> Judgement:
    """A user's reward function: the attempt ends with an answer, and no tool was asked the same twice."""
    asked = [(call.call.name, str(call.call.arguments)) for call in attempt.calls]
    parts = {"answered": 0.7 * bool(attempt.answer), "distinct": 0.3 * len(set(asked)) / max(1, len(asked))}
    return Judgement(sum(parts.values()), parts)


OPTIONS: Final = Options(reward_functions=(NamedReward(_REWARD, thrift),))


def expected(episodes: Iterable[Episode]) -> dict[str, int]:
    """What must come out, by name: counts of episodes, steps, messages, tokens, outcomes, rewards and failures."""
    found: Counter[str] = Counter()
    for episode in episodes:
        found["episodes"] += 1
        found["failed" if episode.fault else "succeeded"] += 1
        found["failed without a cause"] += 0
        found["rewarded"] += episode.reward is not None
        found["rewards"] += int(episode.reward or 0)
        found["judged by the user's function"] += 1
        found["spans"] += episode.spans
        for call in episode.calls:
            found["steps"] += 1
            found["messages"] += len(call.seen)
            if call.said is not None and episode.is_captured:
                found["prompt tokens"] += sum(len(message.tokens()) for message in call.seen)
                found["sampled tokens"] += len(call.said.tokens())
    return dict(found)


def facts(converted: Converted) -> dict[str, int]:
    """The same of a conversion."""
    episodes, steps = converted.episodes, converted.transitions
    outcomes = dict(episodes["outcome"].value_counts().iter_rows())
    open_failures = converted.failures.filter(~pl.col("is_recovered"))
    failed = episodes.filter(pl.col("outcome") == "failure")
    breakdowns = [dict(found) for found in episodes["reward_breakdown"].to_list()]
    return {
        "episodes": episodes.height,
        "failed": outcomes.get("failure", 0),
        "succeeded": outcomes.get("success", 0),
        "failed without a cause": failed.join(open_failures, on="episode_id", how="anti").height,
        "rewarded": sum("reward" in found for found in breakdowns),
        "rewards": int(sum(found.get("reward", 0.0) for found in breakdowns)),
        "judged by the user's function": sum(_REWARD in found for found in breakdowns),
        "spans": int(episodes["span_count"].sum()),
        "steps": steps.height,
        "messages": sum(sum(state[1::2]) - sum(state[::2]) for state in steps["state"].to_list()),
        "prompt tokens": int(steps["prompt_token_ids"].list.len().sum()),
        "sampled tokens": int(steps["response_token_ids"].list.len().sum()),
    }


def check(wanted: dict[str, int], converted: Converted) -> None:
    """Insist on ``wanted``.

    Raises:
        SystemExit: Something else came out; names what.
    """
    found = facts(converted)
    wrong = {name: (found[name], value) for name, value in wanted.items() if found[name] != value}
    if wrong:
        raise SystemExit("; ".join(f"{name}: got {got}, expected {value}" for name, (got, value) in wrong.items()))
