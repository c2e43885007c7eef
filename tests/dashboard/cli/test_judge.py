"""``spanloop judge``: a judgement reaches its converted episode, is listed, compared with the rules, and taken back."""

import io
import re

import pytest

from spanloop.cli import console
from spanloop.cli.app import app
from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.paths import DataDir
from spanloop.pipeline import run as convert
from spanloop.semconv.environment import CLICKHOUSE_URL_ENV
from spanloop.store import Store
from spanloop.store.client import Address, Connection
from spanloop.store.judgements import count_by_rule

from ...converters.converters.converters_world import OPENING, answers, asks, text, trace_id
from ...converters.converters.pipeline_feed import Feed

TRACE = trace_id("a")


@pytest.fixture
def judged(
    data_dir: DataDir, address: Address, store: Store, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> DataDir:
    """A data directory over a store with one failed episode, whose failure a rule blames on the policy."""
    url = f"{address.scheme}://{address.user}:{address.password}@{address.host}:{address.port}/{address.database}"
    monkeypatch.setenv(CLICKHOUSE_URL_ENV, url)
    feed = Feed(store, connection)
    call, error = asks("c1", arguments={"limit": 1}), "Error: missing required argument 'query'"
    feed.world.call(OPENING, call, trace=TRACE)
    feed.world.tool("c1", error, trace=TRACE)
    feed.world.call((*OPENING, call, answers("c1", error)), text("assistant", "It rains."), trace=TRACE)
    feed.world.score(0.0, trace_id=TRACE)
    feed.send()
    convert(store)
    return data_dir


def run(data_dir: DataDir, *arguments: str) -> str:
    """What ``spanloop judge`` prints, with single spaces."""
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(console.out, "_file", printed)
        patch.setattr(console.err, "_file", printed)
        app(["judge", *arguments, "--data-dir", str(data_dir.path)], standalone_mode=False)
    return re.sub(r" +", " ", printed.getvalue())


def test_a_failure_is_shown_judged_compared_and_taken_back(judged: DataDir, store: Store) -> None:
    def outcome() -> tuple[str, str]:
        convert(store)
        row = store.query("dashboard_episode", episode_id=TRACE).row(0, named=True)
        return row["outcome"], row["fault_owner"]

    assert run(judged, "list") == "no judgements\n"
    assert run(judged, "rules") == "no judgements of what a rule says\n"
    assert "policy invalid_arguments violated_schema no" in run(judged, "show", TRACE)
    identity = run(judged, "add", "--episode", TRACE, "--failure", "0", "--owner", "harness", "--by", "ann").strip()
    assert outcome() == ("failure", "harness")
    assert re.search(rf"{identity[:8]}.*failure.*bad.*harness.*ann", run(judged, "list").replace("\n", " "))
    assert "violated_schema 1 0 1" in run(judged, "rules")
    run(judged, "add", "bad", "--episode", TRACE, "--failure", "0", "--by", "ann")
    assert outcome() == ("failure", "policy")
    assert "violated_schema 1 1 0" in run(judged, "rules")
    run(judged, "undo", store.query("judgements_current", trace_ids=[], episode_ids=[], max_rows=9)["judgement_id"][0])
    assert run(judged, "list") == "no judgements\n"
    assert outcome() == ("failure", "policy")


def test_disagreement_about_outcomes_and_missed_failures_is_counted(judged: DataDir, store: Store) -> None:
    run(judged, "add", "good", "--episode", TRACE)
    run(judged, "add", "bad", "--episode", TRACE, "--step", "1", "--comment", "no greeting")
    run(judged, "add", "--episode", TRACE, "--step", "0", "--comment", "only a remark")
    assert set(count_by_rule(store).select("rule", "judged", "disagreed").rows()) == {
        ("violated_schema", 1, 1),
        ("no failure", 1, 1),
    }


def test_what_cannot_be_judged_is_refused(judged: DataDir, store: Store) -> None:
    for arguments, message in (
        (["add", "--episode", TRACE], "says nothing"),
        (["add", "fine", "--episode", TRACE], "verdict Input should be 'good' or 'bad'"),
        (["add", "good", "--episode", "x"], "no episode 'x'"),
        (["add", "good", "--episode", TRACE, "--step", "7"], "with a step 7"),
        (["add", "good", "--episode", TRACE, "--step", "0", "--failure", "0"], "a step or a failure"),
        (["add", "--number", "1", "--episode", TRACE, "--failure", "0"], "A failure has no reward"),
        (["undo", "nope"], "There is no judgement nope"),
    ):
        with pytest.raises(ConfigurationError, match=re.escape(message)):
            run(judged, *arguments)
    assert store.query("judgements_current", trace_ids=[], episode_ids=[], max_rows=9).is_empty()
