"""Rows of the rounds of loops: what each step found, how long it took, what was decided, and what runs now."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from spanloop.evaluation.results.bootstrap import Interval
from spanloop.training.jobs.entities import Tick
from spanloop.training.loop.estimates import Estimates
from spanloop.training.loop.rounds import STEPS, LoopRound, RoundOutcome, StepName, StepRecord
from spanloop.training.spec.stored_spec import Schedule

from .formatting import duration
from .jobs import last_tick

OUTCOME_MARKS: Final = {
    RoundOutcome.PROMOTED: "✓ promoted",
    RoundOutcome.KEPT: "= kept",
    RoundOutcome.UNDECIDED: "? undecided",
    RoundOutcome.REACHED: "✓ reached",
    RoundOutcome.ABANDONED: "✕ abandoned",
}
_TITLES: Final = {
    StepName.MEASURE: "measure the champion",
    StepName.COLLECT: "collect attempts",
    StepName.TRAIN: "train",
    StepName.TEST: "test the new version",
    StepName.DECIDE: "decide",
}


def round_row(number: LoopRound) -> dict[str, object]:
    """Return the row of a round."""
    return {
        "model": number.model,
        "round": number.number,
        "outcome": OUTCOME_MARKS[number.outcome] if number.outcome else "▶ open",
        "champion": number.champion,
        "success": success_text(number.step(StepName.MEASURE)),
        "candidate": number.candidate,
        "its_success": success_text(number.step(StepName.TEST)),
        "started_at": number.started_at,
        "took": duration(round(number.seconds * 1e9)) if number.seconds else "",
        "tokens": number.tokens,
        "reason": number.reason,
    }


def step_row(step: StepRecord) -> dict[str, object]:
    """Return the row of a step of a round."""
    result = step.result or {}
    found = success_text(step) or " ".join(
        str(result[name]) for name in ("attempts", "candidate", "job", "outcome", "reason") if result.get(name)
    )
    return {
        "step": f"{STEPS.index(step.name) + 1} of {len(STEPS)}: {_TITLES[step.name]}",
        "state": "✓ finished" if step.is_finished else "▶ begun",
        "took": duration(round(step.seconds * 1e9)) if step.seconds else "",
        "tokens": step.tokens,
        "result": found,
    }


def schedule_row(schedule: Schedule, ticks: Sequence[Tick]) -> dict[str, object]:
    """Return the row of a schedule that begins rounds, with its newest tick."""
    return {
        "trigger": schedule.trigger_text,
        "file": schedule.settings.loop.path if schedule.settings.loop is not None else "",
        "model": schedule.spec.base,
        "next_at": None if schedule.paused_at else schedule.next_at,
        "last_tick": last_tick(ticks, is_paused=bool(schedule.paused_at)),
    }


def success_text(step: StepRecord) -> str:
    """Return the success that a step measured, with its interval; empty without one."""
    success = (step.result or {}).get("success")
    return Interval(*success).text(".0f", scale=100, unit=" %") if success else ""


def running_text(rounds: Sequence[LoopRound], opened: LoopRound, now: datetime) -> str:
    """Return which step of an open round runs, and the time that is left by earlier rounds."""
    step = next((each for each in reversed(opened.steps) if not each.is_finished), None)
    if step is None:
        return f"Round {opened.number} of {opened.model} is open."
    position = f"step {STEPS.index(step.name) + 1} of {len(STEPS)}"
    text = f"Round {opened.number} of {opened.model}, {position}: {_TITLES[step.name]}"
    if not step.began_at:
        return text
    elapsed_s = max(0.0, (now - datetime.fromisoformat(step.began_at)).total_seconds())
    text += f", for {duration(round(elapsed_s * 1e9))}"
    estimates = Estimates([each for each in rounds if each.model == opened.model], 1.0, {})
    expected_s, rest_s = estimates.seconds(step.name), estimates.rest_s(step.name, 0)
    if expected_s is None or rest_s is None:
        return text
    return f"{text}; about {duration(round((max(0.0, expected_s - elapsed_s) + rest_s) * 1e9))} left of the round"
