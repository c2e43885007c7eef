"""``spanloop marks``: a mark reaches its converted episode and is taken back."""

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
from spanloop.store.scores import Score, add_scores

from ...converters.converters.converters_world import loop, trace_id
from ...converters.converters.pipeline_feed import Feed

TRACE = trace_id("a")


@pytest.fixture
def marks(data_dir: DataDir, address: Address, monkeypatch: pytest.MonkeyPatch) -> DataDir:
    url = f"{address.scheme}://{address.user}:{address.password}@{address.host}:{address.port}/{address.database}"
    monkeypatch.setenv(CLICKHOUSE_URL_ENV, url)
    return data_dir


def run(data_dir: DataDir, *arguments: str) -> str:
    """What ``spanloop marks`` prints, with single spaces."""
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(console.out, "_file", printed)
        patch.setattr(console.err, "_file", printed)
        app(["marks", *arguments, "--data-dir", str(data_dir.path)], standalone_mode=False)
    return re.sub(r" +", " ", printed.getvalue())


def test_an_episode_is_marked_listed_and_unmarked(marks: DataDir, store: Store, connection: Connection) -> None:
    feed = Feed(store, connection)
    loop(feed.world, "a", trace=TRACE)
    feed.send()

    def stored() -> list[str]:
        convert(store)
        (labels,) = store.query("dashboard_episode", episode_id=TRACE)["marks"].to_list()
        return [str(label) for label in labels]

    assert run(marks, "list") == "no marks\n"
    run(marks, "add", " good ", "--episode", TRACE)
    add_scores(store, [Score(name="spanloop.mark", label="odd", value=1, trace_id=TRACE, source="judge")])
    assert stored() == ["good", "odd"]
    assert "good 1 " in run(marks, "list")
    run(marks, "remove", "odd", "--episode", TRACE)
    assert stored() == ["good"]


@pytest.mark.parametrize("option", ["--episode", "--trace", "--response", "--session"])
@pytest.mark.parametrize("command", ["add", "remove"])
def test_a_mark_of_what_is_not_stored_is_refused(
    marks: DataDir, store: Store, connection: Connection, option: str, command: str
) -> None:
    feed = Feed(store, connection)
    loop(feed.world, "a", trace=TRACE)
    feed.send()
    unknown = "0" * 31 + "1" if option == "--trace" else TRACE[:8]
    with pytest.raises(ConfigurationError, match=f"The store has no {option[2:]} '{unknown}'") as caught:
        run(marks, command, "good", option, unknown)
    assert "try again" in caught.value.next_step
    assert store.query("scores_newest", limit=9).is_empty()


def test_a_mark_needs_a_label_and_a_target(marks: DataDir) -> None:
    with pytest.raises(ConfigurationError, match="a mark needs a label") as caught:
        run(marks, "add", " ", "--session", "s")
    assert "spanloop marks add --help" in caught.value.next_step
    with pytest.raises(ConfigurationError, match="expected one of trace_id"):
        run(marks, "add", "good")
