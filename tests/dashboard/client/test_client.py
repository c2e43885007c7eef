"""``spanloop.client.Client``: twenty questions against plain SQL, the pages' filters, and what it refuses."""

import subprocess
import sys

import polars as pl
import pytest
from asking.questions import QUESTIONS, Question, World, ask_client, ask_tables

from spanloop.client import Client
from spanloop.foundation.errors import ConfigurationError, JobError
from spanloop.foundation.paths import DataDir
from spanloop.store import Store
from spanloop.store.client import Address

from ..dashboard.dashboard_seeding import Seeded


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.text)
def test_twenty_questions_have_the_answers_of_plain_sql(
    question: Question, generated: World, generated_address: tuple[Address, World]
) -> None:
    with Client() as client, Store(generated_address[0]) as store:
        expected = ask_tables(store.connection, question, generated)
        assert expected not in ([], [(0,)])
        assert ask_client(client, question, generated) == expected


def test_twenty_questions_are_twenty() -> None:
    assert len({question.text for question in QUESTIONS}) == len(QUESTIONS) == 20


def test_a_pages_address_its_parameters_and_a_mapping_select_the_same(seeded: Seeded) -> None:
    address = "http://127.0.0.1:8501/episodes?outcome=failure&policy=shop-tiny%40v1&policy=shop-tiny%40v2&sort=-reward"
    with Client() as client:
        frame = client.episodes(address)
        assert 0 < frame.height < seeded.episodes
        assert frame["reward"].is_sorted(descending=True)
        assert frame.equals(client.episodes(address.partition("?")[2]))
        versions = ["shop-tiny@v1", "shop-tiny@v2"]
        assert frame.equals(client.episodes({"outcome": "failure", "policy": versions}, sort="-reward"))
        assert client.count("episodes", address) == frame.height
        for everything in ("", "http://127.0.0.1:8501/episodes", "/episodes"):
            assert client.count("episodes", everything) == seeded.episodes


def test_a_list_longer_than_a_statements_rows_is_whole(seeded: Seeded, monkeypatch: pytest.MonkeyPatch) -> None:
    with Client() as client:
        whole = client.episodes()
        monkeypatch.setattr("spanloop.client.client._PAGE_ROWS", 7)
        assert client.episodes().equals(whole)
        assert client.episodes(limit=16).equals(whole.head(16))
        assert whole.height == seeded.episodes
        assert seeded.tombstone_id not in whole["episode_id"]


@pytest.mark.parametrize(
    ("filters", "problem"),
    [
        ({"colour": "red"}, "no filter colour.*"),
        ({"outcome": "fail"}, "expected one of success, failure, unknown"),
        ({"reward": "high"}, "expected a range"),
        ("time=tomorrow", "time is 'tomorrow'"),
        ("match=whole", "expected part"),
        ("failure", "'failure' cannot be read"),
    ],
)
def test_a_filter_that_cannot_be_read_is_an_error(filters: str | dict[str, str], problem: str, seeded: Seeded) -> None:
    del seeded
    with Client() as client, pytest.raises(ConfigurationError, match=problem):
        client.episodes(filters)


def test_what_cannot_be_sorted_grouped_or_listed_is_an_error(seeded: Seeded) -> None:
    with Client() as client:
        with pytest.raises(ConfigurationError, match="Sort by one of started, outcome"):
            client.episodes(sort="colour")
        with pytest.raises(ConfigurationError, match="Group by one of policy, agent"):
            client.outcomes("colour")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        with pytest.raises(ConfigurationError, match="Use one of outcome, agent"):
            client.values("reward")
        with pytest.raises(ConfigurationError, match="0 rows"):
            client.steps(limit=0)
        with pytest.raises(ConfigurationError, match="no episode 'nowhere'"):
            client.messages("nowhere")
        assert client.episode("nowhere") is None
    assert seeded.episodes


def test_messages_are_shown_once_in_order(seeded: Seeded) -> None:
    with Client() as client:
        messages = client.messages(seeded.failed_id)
        rest = client.messages(seeded.failed_id, first_step=1)
    assert messages["role"].to_list() == ["system", "user", "assistant", "tool", "assistant"]
    assert messages["kind"].to_list() == ["text", "text", "tool_call", "tool_result", "text"]
    assert messages["step"].to_list() == [0, 0, 0, 0, 1]
    assert messages["error_type"][3] == "TimeoutError"
    assert rest.equals(messages.filter(step=1))


def test_scores_failures_and_values_of_an_episode(seeded: Seeded) -> None:
    with Client() as client:
        scores = client.scores(episode_id=seeded.failed_id)
        assert {"reward"} <= {*scores["name"]}
        assert client.scores(names=["reward"], episode_id=seeded.failed_id).height == 1
        assert client.episode_failures(seeded.failed_id).height == 1
        assert client.values("agent")["value"].to_list() == ["shopkeeper"]
        outcomes = client.outcomes("policy", "owner=policy").to_dicts()
    assert all(row["success"] == 0.0 < row["success_high"] for row in outcomes)


def test_a_client_of_a_service_answers_as_the_filter_on_the_service_does(generated: World) -> None:
    del generated
    only = {"service": "service-2"}
    with Client() as client, Client(services=["service-2"]) as limited:
        assert client.outcomes("service").height == 4
        assert limited.outcomes("service")["service"].to_list() == ["service-2"]
        for ask in (
            Client.episodes,
            Client.steps,
            Client.failures,
            Client.traces,
            Client.failure_groups,
            Client.tools,
        ):
            answer = ask(limited)
            assert not answer.is_empty()
            assert answer.equals(ask(client, only)), ask
        for name in ("episodes", "steps", "failures", "traces"):
            assert 0 < limited.count(name) == client.count(name, only)
        # Also those of traces whose episode was deleted.
        scores, traces = limited.scores(), client.traces(only)["trace_id"]
        assert scores.equals(client.scores().filter(pl.col("trace_id").is_in(traces.implode())))
        assert client.scores(only).height < scores.height
        assert limited.episodes({"q": "babo"}).equals(client.episodes({**only, "q": "babo"}))
        with pytest.raises(ConfigurationError, match="sees no data set"):
            limited.data_sets()
        with pytest.raises(ConfigurationError, match="sees no data set"):
            limited.training_data()


def test_without_data_sets_the_lists_are_empty_and_a_name_is_refused(seeded: Seeded, data_dir: DataDir) -> None:
    del seeded
    with Client(data_dir.path) as client:
        assert client.data_sets().is_empty()
        assert client.training_data().is_empty()
        for name in ("nothing", "../jobs", ""):
            with pytest.raises(JobError, match="no job"):
                client.training_episodes(name)
            with pytest.raises(ConfigurationError, match="no data set"):
                client.data_set_episodes(name)


def test_importing_the_client_loads_neither_training_nor_pages() -> None:
    code = "import sys, spanloop.client; print(*{name.partition('.')[0] for name in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "polars" in loaded
    heavy = {"torch", "ray", "verl", "streamlit", "transformers", "datasets", "mcp", "sqlalchemy", "vllm"}
    assert not heavy & {*loaded}
