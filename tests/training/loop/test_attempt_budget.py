"""A budget inside a run, before a real gateway: which attempts begin, and what stops a running one."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spanloop.evaluation.runner.ledger import Summary
from spanloop.evaluation.runner.run import RunPlan, run_attempts
from spanloop.foundation.paths import DataDir
from spanloop.foundation.settings.roles import GatewaySettings
from spanloop.gateway.app import Gateway
from spanloop.store import Store
from spanloop.training.loop.budget import Budget, BudgetSpentError, Spent
from spanloop.training.loop.gated_agent import AttemptGate, gated

from ...evaluation.runner.support import Told, plan_of, stored_attempts
from ...gateway.support import PROMPT_IDS, WORDS, StandIn, serving, wait_until, write_model

CALL_TOKENS = len(PROMPT_IDS) + len(WORDS)
CALLS = 3
"""Model calls of an attempt."""
ATTEMPT_TOKENS = CALLS * CALL_TOKENS
TASKS = 4
NOTHING = Spent()
AGENT = f"""
import os, pathlib, time
from openai import OpenAI, OpenAIError

def solve(task):
    client = OpenAI(max_retries=2)
    for _ in range({CALLS}):
        client.chat.completions.create(model="stand-in", messages=[{{"role": "user", "content": task["name"]}}])
    return "yes"

def swallow(task):
    try:
        return solve(task)
    except OpenAIError as error:
        pathlib.Path("refusal").write_text(str(error))
        return "no"

def sleep(task):
    time.sleep(60)
"""


@pytest.fixture
def engine(data_dir: DataDir, tmp_path: Path) -> Iterator[StandIn]:
    """The engine of a gateway that runs on the data directory."""
    stand_in = StandIn(write_model(tmp_path / "models" / "v1", 1))
    with serving(stand_in.app()) as upstream:
        gateway = Gateway(GatewaySettings(upstream=upstream), data_dir)
        with serving(gateway.application()) as url, data_dir.announce("gateway", url):
            wait_until(lambda: gateway.admission.endpoint is not None)
            yield stand_in


@pytest.fixture
def attempts(data_dir: DataDir, store: Store, tmp_path: Path) -> Callable[..., Summary]:
    """Run the attempts of a run that a budget limits; the same run continues."""
    (tmp_path / "solver.py").write_text(AGENT)
    lines = [f'{{"id": "t{number}", "name": "t{number}", "answer": "yes"}}\n' for number in range(TASKS)]
    (tmp_path / "tasks.jsonl").write_text("".join(lines))

    def run(budget: Budget, agent: str = "solver:solve", *, spent: Spent = NOTHING, parallel: int = 1) -> Summary:
        gateway = data_dir.find("gateway")
        url = "http://127.0.0.1:9" if gateway is None else gateway.url
        environment = {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "not-needed", "PATH": "/usr/bin:/bin"}
        plan: RunPlan = plan_of(
            data_dir.runs / "r",
            tmp_path / "tasks.jsonl",
            agent,
            parallel=parallel,
            grader="exact",
            cwd=tmp_path,
            environment=environment,
        )
        gate = AttemptGate(budget, data_dir, spent)
        gate.restart(spent)
        summary = run_attempts(gated(plan, gate), store, Told(), threading.Event())
        gate.check()
        return summary

    return run


def test_an_attempt_that_would_exceed_the_tokens_is_not_begun(
    engine: StandIn, attempts: Callable[..., Summary], store: Store
) -> None:
    budget = Budget(tokens=2 * ATTEMPT_TOKENS + CALL_TOKENS)
    with pytest.raises(BudgetSpentError, match=rf"{2 * ATTEMPT_TOKENS} are spent, and about {ATTEMPT_TOKENS} would"):
        attempts(budget)
    assert [row["is_success"] for row in stored_attempts(store)] == [True, True]
    assert len(chats(engine)) == 2 * CALLS


@pytest.mark.parametrize("agent", ["solver:solve", "solver:swallow"])
def test_the_call_that_would_exceed_the_tokens_is_refused_and_its_attempt_is_made_again(
    engine: StandIn, attempts: Callable[..., Summary], store: Store, tmp_path: Path, agent: str
) -> None:
    with pytest.raises(BudgetSpentError, match="14 tokens are spent, and the gateway refused a call"):
        attempts(Budget(tokens=2 * CALL_TOKENS + 1), agent)
    assert len(chats(engine)) == 2
    assert stored_attempts(store) == []
    if agent == "solver:swallow":
        assert "Raise [budget] in the loop's file" in (tmp_path / "refusal").read_text()
    summary = attempts(Budget(tokens=1_000), agent, spent=Spent(2 * CALL_TOKENS))
    assert (summary.attempts, summary.successes) == (TASKS, TASKS)
    rows = stored_attempts(store)
    assert [len(row["interrupted_episode_ids"]) for row in rows] == [1, 0, 0, 0]
    assert len(chats(engine)) == 2 + TASKS * CALLS


def test_money_limits_the_tokens_of_a_call(engine: StandIn, attempts: Callable[..., Summary]) -> None:
    price = Budget(money=1.0, price_per_million_tokens=1e6 / (CALL_TOKENS + 1))
    with pytest.raises(BudgetSpentError, match="7 tokens are spent, and the gateway refused a call"):
        attempts(price)
    assert len(chats(engine)) == 1


@pytest.mark.usefixtures("engine")
def test_until_an_attempt_has_ended_one_runs_at_a_time(attempts: Callable[..., Summary], store: Store) -> None:
    with pytest.raises(BudgetSpentError):
        attempts(Budget(tokens=2 * ATTEMPT_TOKENS), parallel=4)
    assert len(stored_attempts(store)) == 2


def test_an_attempt_at_the_end_of_the_time_is_interrupted(attempts: Callable[..., Summary], store: Store) -> None:
    with pytest.raises(BudgetSpentError, match="2 hours are over; the running attempts were interrupted"):
        attempts(Budget(hours=2), "solver:sleep", spent=Spent(0, 2 * 3_600 - 3))
    assert stored_attempts(store) == []


def chats(engine: StandIn) -> list[object]:
    """Return the requests of agents; the gateway's own probe has no task."""
    return [each for each in engine.requests if each.get("messages", [{}])[0].get("content", "").startswith("t")]
