"""Model versions as a family tree."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from spanloop.dashboard.views.lineage import lineage
from spanloop.training.registry import ModelVersion


def model(reference: str, parent: str | None = None, age: int = 0) -> ModelVersion:
    name, _, version = reference.partition("@")
    created = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=age)
    return ModelVersion(name, version, Path("/m") / name / version, parent, None, created, "0" * 64, 1, {})


def shape(*models: ModelVersion) -> list[tuple[str, int]]:
    return [(line.model.reference, line.depth) for line in lineage(models)]


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
    labels = [line.label for line in lineage((model("a@v1"), model("a@v2", "a@v1", 1), model("a@v3", "a@v2", 2)))]
    assert labels == ["a@v1", "└ a@v2", "\u2003└ a@v3"]
