"""A canary from its start to its decision: a real gateway in front of stand-ins for vLLM, and a real store."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
import streamlit as st

from spanloop.foundation.errors import ConfigurationError, JobError, ServiceError
from spanloop.foundation.paths import DataDir
from spanloop.foundation.settings import Guard, Promotion
from spanloop.foundation.settings.metric import Metric
from spanloop.foundation.settings.roles import GatewaySettings
from spanloop.gateway.app import Gateway
from spanloop.semconv.environment import CLICKHOUSE_URL_ENV, DATA_DIR_ENV
from spanloop.store import Store
from spanloop.store.client import Address, Connection
from spanloop.training.models.registry import ModelVersion, Registry
from spanloop.training.promotion import deploy as deployment
from spanloop.training.promotion.aliases import Aliases
from spanloop.training.promotion.canary import decision as canary_decision
from spanloop.training.promotion.canary.decision import begin_canary, decide_canary
from spanloop.training.promotion.canary.gateway_canary import CanaryRequest, running_canary, served_version, stop_canary
from spanloop.training.promotion.canary.look import look
from spanloop.training.promotion.canary.watch import watching_canary
from spanloop.training.promotion.decisions import Decisions
from spanloop.training.promotion.outcome import PromotionOutcome
from spanloop.training.promotion.promote import Actions

from ...dashboard.dashboard.dashboard_driver import button, open_page, table, text_of, visit_as_operator
from ...gateway.support import RunningGateway, StandIn, serving, wait_until, write_model
from ..training_seeding import episode_row, insert, transition_row

RULE = Promotion(min_tasks=10, max_sessions=100, feedback_s=0)
SESSIONS = 80
"""Enough of both versions, however they are drawn."""


@dataclass
class Served:
    """A gateway that serves ``m@v1``, and a server of ``m@v2`` beside it."""

    gateway: RunningGateway
    data_dir: DataDir
    store: Store
    connection: Connection
    candidate_url: str
    asked: int = 0

    def begin(self, share: float = 0.5) -> str:
        return begin_canary(self.data_dir, CanaryRequest("m@v2", share, upstream=self.candidate_url), RULE).id

    def ask(self, sessions: int) -> None:
        """One call in each of some new sessions, stored."""

        def ask(number: int) -> int:
            return self.gateway.chat(headers={"x-session-id": f"s{number}"}).status_code

        with ThreadPoolExecutor(8) as pool:
            assert set(pool.map(ask, range(self.asked, self.asked + sessions))) == {200}
        self.asked += sessions
        wait_until(lambda: self.calls(lambda _: None) >= self.asked)

    def calls(self, reward: Callable[[str], float | None]) -> int:
        """Let each call that has none be an episode with a reward by its arm; return the number of calls."""
        rows = self.connection.query("SELECT response_id, arm FROM canary_calls FINAL", doing="looking").to_dicts()
        known = set(self.connection.query("SELECT episode_id FROM episodes", doing="looking")["episode_id"])
        new = [row for row in rows if row["response_id"] not in known and reward(row["arm"]) is not None]
        if new:
            episodes = [episode_row(row["response_id"], "t", n, reward(row["arm"])) for n, row in enumerate(new)]
            steps = [transition_row(row["response_id"], "t", 0, {}) for row in new]
            insert(self.store, "episodes", episodes)
            insert(
                self.store,
                "transitions",
                [step | {"response_id": row["response_id"]} for step, row in zip(steps, new, strict=True)],
            )
        return len(rows)

    def decide(self) -> canary_decision.CanaryState | None:
        return decide_canary(self.store, self.data_dir, RULE, Actions(self.data_dir))


def as_it_is(model: ModelVersion) -> Path:
    return model.path


@pytest.fixture
def fresh_page(data_dir: DataDir, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(DATA_DIR_ENV, str(data_dir.path))
    visit_as_operator(monkeypatch)
    st.cache_resource.clear()
    yield
    st.cache_resource.clear()


@pytest.fixture
def served(
    store: Store, data_dir: DataDir, address: Address, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Served]:
    monkeypatch.setenv(
        CLICKHOUSE_URL_ENV,
        f"{address.scheme}://{address.user}:{address.password}@{address.host}:{address.port}/{address.database}",
    )
    monkeypatch.setattr(deployment, "_untied_copy", as_it_is)
    registry = Registry(data_dir)
    parent = None
    for number in (1, 2, 3):
        parent = registry.add("m", write_model(tmp_path / f"v{number}", number), parent=parent).reference
    champion, candidate = StandIn(write_model(tmp_path / "base", 9)), StandIn(tmp_path / "v2", first_id=10**6)
    with serving(champion.app()) as upstream, serving(candidate.app()) as candidate_url:
        gateway = Gateway(GatewaySettings(upstream=upstream), data_dir)
        with serving(gateway.application()) as url, data_dir.announce("gateway", url):
            wait_until(lambda: gateway.admission.endpoint is not None)
            deployment.deploy(data_dir, "m@v1")
            Aliases(data_dir).set("m@v1", "champion")
            connection = Connection(address)
            yield Served(RunningGateway(url, data_dir, gateway), data_dir, store, connection, candidate_url)
            connection.close()


def test_a_worse_candidate_is_rolled_back_with_its_evidence(served: Served) -> None:
    identity = served.begin()
    served.ask(SESSIONS)
    served.calls(lambda arm: float(arm == "champion"))
    state = served.decide()
    assert state is not None
    decision = state.decision
    assert decision is not None
    assert (decision.outcome, decision.candidate, decision.champion) == (
        PromotionOutcome.ROLLED_BACK, "m@v2", "m@v1",
    )  # fmt: skip
    assert (decision.evidence.canary, decision.rule) == (identity, RULE)
    assert state.look.candidate.means[Metric.SUCCESS] == 0
    assert state.look.champion.means[Metric.SUCCESS] == 1
    assert state.look.candidate.sessions + state.look.champion.sessions == SESSIONS
    assert Decisions(served.data_dir).list("m") == (decision,)
    assert running_canary(served.data_dir) is None
    assert {alias.alias: alias.reference for alias in Aliases(served.data_dir).list("m")} == {"champion": "m@v1"}
    assert served.gateway.chat(headers={"x-session-id": "another"}).json()["model"] == "m@v1"
    assert served.decide() is None


def test_a_better_candidate_becomes_the_champion_and_a_kill_in_between_decides_once(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.begin()
    served.ask(SESSIONS)
    served.calls(lambda arm: float(arm == "candidate"))

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Decisions, "record", killed)
        with pytest.raises(KeyboardInterrupt):
            served.decide()
    assert served_version(served.data_dir) == "m@v2"
    assert Decisions(served.data_dir).list("m") == ()
    assert served.decide() is None
    (decision,) = Decisions(served.data_dir).list("m")
    assert decision.outcome is PromotionOutcome.PROMOTED
    assert {alias.alias: alias.reference for alias in Aliases(served.data_dir).list("m")} == {"champion": "m@v2"}
    served.decide()
    assert len(Decisions(served.data_dir).list("m")) == 1
    assert served.gateway.chat().json()["model"] == "m@v2"


@pytest.mark.slow
def test_a_decision_that_was_overtaken_is_dropped(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    served.begin()
    served.ask(SESSIONS)
    served.calls(lambda arm: float(arm == "candidate"))

    def away(*_: object, **__: object) -> None:
        raise ServiceError("away", next_step="")

    with monkeypatch.context() as patched:
        patched.setattr(Actions, "serve", away)
        with pytest.raises(ServiceError):
            served.decide()
    stop_canary(served.data_dir)
    assert served.decide() is None
    assert Decisions(served.data_dir).list("m") == ()
    assert served_version(served.data_dir) == "m@v1"


def test_a_counted_session_keeps_its_values_and_later_looks_continue(served: Served) -> None:
    identity = served.begin()
    served.ask(4)
    served.calls(lambda _: 1.0)
    first = served.decide()
    assert first is not None
    assert first.decision is None
    assert (first.look.candidate.sessions + first.look.champion.sessions) == 4
    served.connection.command("ALTER TABLE episode_summaries UPDATE outcome = 'failure' WHERE 1", doing="late feedback")
    served.ask(2)
    served.calls(lambda _: 0.0)
    second = look(served.store, identity, RULE)
    again = look(served.store, identity, RULE)
    assert again == second
    successes = sum(
        arm.sessions * arm.means[Metric.SUCCESS] for arm in (second.candidate, second.champion) if arm.sessions
    )
    assert (second.candidate.sessions + second.champion.sessions, successes) == (6, 4)


def test_a_session_that_the_candidate_failed_is_a_failure_without_waiting_for_a_reward(
    served: Served, tmp_path: Path
) -> None:
    failing = StandIn(tmp_path / "v2", error_response=None)
    with serving(failing.app()) as url:
        begin_canary(served.data_dir, CanaryRequest("m@v2", 1, upstream=url), RULE)
        failing.error_response = (500, {"error": {"message": "out of memory"}})
        served.ask(2)
    state = served.decide()
    assert state is not None
    means = state.look.candidate.means
    assert (means[Metric.SUCCESS], means[Metric.CRASHES], means[Metric.ERRORS]) == (0, 1, 1)


def test_what_cannot_be_compared_is_refused_and_starts_nothing(served: Served) -> None:
    request = CanaryRequest("m@v2", 0.1, upstream=served.candidate_url)
    for share in (0, 1.5):
        with pytest.raises(ConfigurationError, match="above 0 and at most 1"):
            begin_canary(served.data_dir, request._replace(share=share), RULE)
    with pytest.raises(JobError, match="m@v1 is the champion"):
        begin_canary(served.data_dir, request._replace(reference="m@v1"), RULE)
    unknown = Promotion(guards={Metric.TOOL_SELECTION: Guard(at_least=0.5)})
    with pytest.raises(ConfigurationError, match="A canary cannot measure tool_selection"):
        begin_canary(served.data_dir, request, unknown)
    Aliases(served.data_dir).set("m@v3", "champion")
    with pytest.raises(ConfigurationError, match="serves m@v1, and the champion is m@v3"):
        begin_canary(served.data_dir, request, RULE)
    assert running_canary(served.data_dir) is None


@pytest.mark.slow
def test_the_scheduler_decides_without_being_asked(served: Served) -> None:
    served.data_dir.write(
        served.data_dir.path / "spanloop.toml", "[promotion]\nmin_tasks = 10\nmax_sessions = 100\nfeedback_s = 0\n"
    )
    served.begin()
    served.ask(SESSIONS)
    served.calls(lambda arm: float(arm == "champion"))
    with watching_canary(served.data_dir, is_leading=lambda: True, every_s=0.05):
        wait_until(lambda: bool(Decisions(served.data_dir).list("m")))
    assert Decisions(served.data_dir).list("m")[0].outcome is PromotionOutcome.ROLLED_BACK


@pytest.mark.slow
@pytest.mark.usefixtures("fresh_page")
def test_the_page_shows_the_comparison_and_ends_the_canary(served: Served) -> None:
    assert "Canary" not in text_of(open_page("models"))
    served.begin()
    served.ask(12)
    served.calls(lambda arm: float(arm == "champion"))
    served.decide()
    app = open_page("models")
    assert not app.exception
    text = text_of(app)
    assert "**Canary**: m@v2 gets 50.0 % of the sessions, beside m@v1" in text
    assert "not enough to decide" in text
    counted, traffic = ({row["figure"]: row for row in table(app, n).iter_rows(named=True)} for n in (0, 1))
    assert [counted["success"][arm] for arm in ("candidate", "champion")] == ["0", "1"]
    sessions = [int(traffic["sessions"][arm]) for arm in ("candidate", "champion")]
    assert sum(sessions) == 12
    assert sessions == [int(counted["rewarded sessions"][arm]) for arm in ("candidate", "champion")]
    button(app, "End the canary").click().run()
    assert running_canary(served.data_dir) is None
    assert served.gateway.chat(headers={"x-session-id": "another"}).json()["model"] == "m@v1"


@pytest.mark.slow
def test_the_command_line_shows_and_stops_it(served: Served) -> None:
    def spanloop(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(Path(sys.executable).with_name("spanloop")), "canary", *arguments]
        data_dir = ["--data-dir", str(served.data_dir.path)]
        return subprocess.run([*command, *data_dir], capture_output=True, text=True, timeout=60, check=False)

    refused = spanloop("start", "m@v2", "--share", "1.5")
    assert (refused.returncode, "above 0 and at most 1, got 1.5" in refused.stderr) == (2, True)
    served.begin(share=1)
    assert "that of m@v2 runs" in served.gateway.admin("canary", name="m", version="v3", path="/v3", share=1).text
    served.ask(2)
    shown = spanloop("status")
    assert "canary of m@v2 against m@v1: 100.0% of the sessions" in shown.stdout
    assert "undecided: " in shown.stdout
    stopped = spanloop("stop")
    assert "the canary of m@v2 is over; m@v1 answers everything" in stopped.stdout
    assert "no canary runs" in spanloop("status").stderr
