"""What a person judges good is trained on, by the revision that counts the judgement, until it is taken back."""

from pathlib import Path

import pytest

from spanloop.foundation.errors import JobError
from spanloop.foundation.tables.judged_values import Verdict
from spanloop.pipeline import run as convert
from spanloop.store import Store
from spanloop.store.client import Connection
from spanloop.store.judgements import Opinion, find_target, judge, withdraw
from spanloop.training.dataset.export import export_dataset
from spanloop.training.dataset.manifest import Manifest
from spanloop.training.models.base_model import read_base_model
from spanloop.training.spec.job_spec import JobSpec

from ...converters.converters.converters_world import OPENING, text, trace_id
from ...converters.converters.pipeline_feed import Feed


def test_the_manifest_counts_what_is_judged_good(
    store: Store, connection: Connection, tiny_model: Path, tmp_path: Path
) -> None:
    base = read_base_model("tiny@v1", tiny_model)
    feed = Feed(store, connection)
    for number, name in enumerate(("a", "b")):
        feed.world.call(OPENING, text("assistant", f"Sunny {name}."), trace=trace_id(name))
        feed.world.capture([5, 6], [7, 8], response_id=f"chatcmpl-{number + 1}", version=base.reference)
    feed.send()
    convert(store)

    def manifest(name: str) -> Manifest:
        folder = tmp_path / name
        folder.mkdir()
        spec = JobSpec.of(kind="sft", base="tiny", marks=("good",))
        return export_dataset(
            store, spec, base, tokenizer_of={base.reference: base.tokenizer}.get, job_id="j", folder=folder
        )

    with pytest.raises(JobError):
        manifest("before")
    identity = judge(store, find_target(store, trace_id("a")), Opinion(verdict=Verdict.GOOD), judged_by="ann")
    convert(store)
    (pinned,) = (counted := manifest("judged")).pinned
    revision = find_target(store, trace_id("a")).revision
    assert (pinned.episode_id, pinned.revision, counted.episodes.accepted) == (trace_id("a"), revision, 1)
    withdraw(store, [identity])
    convert(store)
    with pytest.raises(JobError):
        manifest("after")
    kept = connection.query("SELECT outcome FROM episodes WHERE revision = " + str(revision), doing="looking")
    assert find_target(store, trace_id("a")).revision > revision
    assert kept.is_empty() or kept.item() == "success"
