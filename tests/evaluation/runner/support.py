"""Plans of runs for tests: commands without instrumentation, and a record of what the runner told."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spanloop.evaluation.graders import GraderContext, load_grader
from spanloop.evaluation.runner.agent import Agent, AgentSettings, is_callable_target
from spanloop.evaluation.runner.answers import Output
from spanloop.evaluation.runner.attempt import EndedAttempt
from spanloop.evaluation.runner.callable_agent import CallableAgent
from spanloop.evaluation.runner.command_agent import CommandAgent
from spanloop.evaluation.runner.ledger import Counts
from spanloop.evaluation.runner.making import AttemptPlan
from spanloop.evaluation.runner.run import RunPlan, mark_prefix
from spanloop.evaluation.runner.served_model import ServedModel
from spanloop.evaluation.runner.stored_attempts import AttemptMaker
from spanloop.evaluation.tasks import TaskReading
from spanloop.store import Store

MODEL = "tiny@v1"


@dataclass
class Told:
    """What the runner told."""

    counts: list[Counts] = field(default_factory=list[Counts])
    results: list[EndedAttempt] = field(default_factory=list[EndedAttempt])
    notes: list[str] = field(default_factory=list[str])
    on_result: Callable[[EndedAttempt], None] = lambda _: None

    def started(self, counts: Counts) -> None:
        self.counts.append(counts)

    def ended(self, ended: EndedAttempt) -> None:
        self.results.append(ended)
        self.on_result(ended)

    def note(self, text: str) -> None:
        self.notes.append(text)

    @property
    def by_attempt(self) -> dict[tuple[str, int], EndedAttempt]:
        return {(each.attempt.task.id, each.attempt.number): each for each in self.results}


def settings_of(folder: Path, agent: str, **settings: Any) -> AgentSettings:
    environment: Mapping[str, str] = settings.pop("environment", os.environ)
    return AgentSettings(agent, environment, mark_prefix(folder), is_instrumented=False, **settings)


def plan_of(
    folder: Path,
    source: Path,
    agent: str,
    *,
    attempts: int = 1,
    parallel: int = 2,
    grader: str = "",
    output: Output = Output.LINE,
    served: ServedModel | None = None,
    **settings: Any,
) -> RunPlan:
    """A plan whose agent runs as it is given."""
    agent_settings = settings_of(folder, agent, **settings)

    def make_agent() -> Agent:
        if is_callable_target(agent):
            return CallableAgent(agent_settings, output=output)
        return CommandAgent(agent_settings, model=MODEL, output=output)

    loaded = load_grader(grader, {}, GraderContext(folder)) if grader else None
    return RunPlan(
        folder=folder,
        identity={"agent": agent},
        tasks=TaskReading(str(source)),
        attempts=attempts,
        maker=AttemptMaker(folder.name, MODEL, grader, loaded.version if loaded else ""),
        making=AttemptPlan(parallel, seed=0, make_agent=make_agent, grader=loaded, served=served),
    )


def stored_attempts(store: Store) -> list[dict[str, Any]]:
    """All rows of ``attempts``, also those that newer ones replace."""
    rows = store.connection.query("SELECT * FROM attempts ORDER BY task_id, attempt", doing="reading attempts")
    return rows.to_dicts()


def rewards(store: Store) -> dict[str, tuple[float, str, str]]:
    """Value, label and source of each episode's reward."""
    sql = "SELECT episode_key, value, label, source FROM scores FINAL WHERE name = 'reward'"
    rows = store.connection.query(sql, doing="reading scores").iter_rows()
    return {key: (value, label, source) for key, value, label, source in rows}
