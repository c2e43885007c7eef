"""A job trains on the revisions that a version of a data set pins, and its manifest counts them."""

from pathlib import Path

import pytest

from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.tables.judged_values import Verdict
from spanloop.pipeline import run as convert
from spanloop.store import Store
from spanloop.store.client import Connection
from spanloop.store.data_sets import add_to_data_set, fetch_members, find_data_set
from spanloop.store.judgements import Opinion, find_target, judge
from spanloop.training.dataset.export import export_dataset
from spanloop.training.dataset.manifest import Manifest, load_manifest
from spanloop.training.models.base_model import read_base_model
from spanloop.training.spec.job_spec import JobSpec

from ...converters.converters.converters_world import OPENING, text, trace_id
from ...converters.converters.pipeline_feed import Feed


def test_a_job_trains_on_pinned_revisions_alone_and_counts_them(
    store: Store, connection: Connection, tiny_model: Path, tmp_path: Path
) -> None:
    base = read_base_model("tiny@v1", tiny_model)
    feed = Feed(store, connection)
    for number, name in enumerate(("a", "b", "c")):
        feed.world.call(OPENING, text("assistant", f"Sunny {name}."), trace=trace_id(name))
        feed.world.capture([5, 6], [7, 8], response_id=f"chatcmpl-{number + 1}", version=base.reference)
        feed.world.score(1.0 if name != "c" else 0.0, trace_id=trace_id(name))
    feed.send()
    convert(store)

    def manifest(folder: str, data_set: str) -> Manifest:
        (tmp_path / folder).mkdir()
        spec = JobSpec.of(kind="sft", base="tiny", data_set=data_set)
        return export_dataset(
            store, spec, base, tokenizer_of={base.reference: base.tokenizer}.get, job_id="j", folder=tmp_path / folder
        )

    add_to_data_set(store, "shop", [trace_id("a"), trace_id("c")], created_by="ann", source="selection")
    pins = dict(fetch_members(store, find_data_set(store, "shop")).select("episode_id", "revision").iter_rows())
    judge(store, find_target(store, trace_id("a")), Opinion(verdict=Verdict.BAD), judged_by="ann")
    convert(store)
    first = manifest("first", "shop@v1")
    assert [(each.episode_id, each.revision) for each in first.pinned] == [(trace_id("a"), pins[trace_id("a")])]
    assert (first.episodes.accepted, first.episodes.rejected) == (1, {"not_successful": 1})
    assert (first.data_set, first.data_set_episodes) == ("shop@v1", 2)
    assert "data set shop@v1: 2 episodes" in first.summary
    assert load_manifest(tmp_path / "first") == first
    add_to_data_set(store, "shop", [trace_id("a"), trace_id("b")], created_by="ann", source="selection")
    newest = manifest("newest", "shop")
    assert (newest.data_set, [each.episode_id for each in newest.pinned]) == ("shop@v2", [trace_id("b")])
    assert newest.episodes.accepted + sum(newest.episodes.rejected.values()) == newest.data_set_episodes == 3
    assert newest.query_parameters["data_set"] == "shop@v2"
    with pytest.raises(ConfigurationError, match="no data set 'shop@v9'"):
        manifest("none", "shop@v9")
