"""Model versions as a family tree."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from spanloop.dashboard.view_models.lineage import VersionNotes, lineage_graph, order_lineage
from spanloop.training.models.registry import ModelVersion


def model(reference: str, parent: str | None = None, age: int = 0) -> ModelVersion:
    name, _, version = reference.partition("@")
    created = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=age)
    return ModelVersion(name, version, Path("/m") / name / version, parent, None, created, "0" * 64, 1, {})


def shape(*models: ModelVersion) -> list[tuple[str, int]]:
    return [(line.model.reference, line.depth) for line in order_lineage(models)]


def test_children_stand_under_their_parent_by_age() -> None:
    assert shape(
        model("a@v3", "a@v1", 3),
        model("b@v1", None, 4),
        model("a@v2", "a@v1", 2),
        model("a@v1"),
        model("c@v1", "a@v2", 5),
    ) == [("a@v1", 0), ("a@v2", 1), ("c@v1", 2), ("a@v3", 1), ("b@v1", 0)]


def test_a_parent_that_is_gone_makes_a_root() -> None:
    assert shape(model("a@v2", "a@v1")) == [("a@v2", 0)]


def test_labels_show_the_depth() -> None:
    labels = [line.label for line in order_lineage((model("a@v1"), model("a@v2", "a@v1", 1), model("a@v3", "a@v2", 2)))]
    assert labels == ["a@v1", "└ a@v2", "\u2003└ a@v3"]


def test_the_graph_links_versions_and_jobs_and_quotes_its_texts() -> None:
    first = model("a@v1")
    second = replace(model("a@v2", "a@v1", 1), job_id="sft-1")
    notes = {"a@v2": VersionNotes(('said "so"',), ("sft, 20 steps", "9 episodes"))}
    dot = lineage_graph(order_lineage((first, second)), notes, served="a@v2", selected="a@v1")
    assert '"a@v2" [label="a@v2 · served\\nsaid \\"so\\"", color="#30a46c"' in dot
    assert 'URL="/models?model=a%40v1"' in dot
    assert '"a@v1" -> "a@v2" [label="sft, 20 steps\\n9 episodes", tooltip="sft-1", URL="/jobs?job=sft-1"]' in dot
    assert dot.count("penwidth=3") == 1


def test_a_version_whose_parent_is_not_drawn_stands_alone() -> None:
    assert "->" not in lineage_graph(order_lineage((model("a@v2", "a@v1"),)), {}, served="", selected="")
