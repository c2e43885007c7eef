import json
from pathlib import Path

import pytest
from huggingface_hub import ModelCard

from spanloop.evaluation.results import load_evaluations
from spanloop.foundation.errors import ConfigurationError, JobError
from spanloop.foundation.paths import DataDir
from spanloop.store import Store
from spanloop.training.models.registry import Registry
from spanloop.training.promotion.aliases import Aliases
from spanloop.training.promotion.model_export import export_model
from spanloop.training.promotion.promote import Actions, promote
from spanloop.training.promotion.prune import prune

from .test_promote import RULE, attempted


def test_an_export_is_a_model_folder_with_its_lineage(
    store: Store, data_dir: DataDir, registry: Registry, model_folder: Path, tmp_path: Path
) -> None:
    (model_folder / "README.md").write_text("The base's card.")
    registry.add("m", model_folder, parent="m@v1", metadata={"kind": "dr_grpo", "steps": 20})  # v5
    Aliases(data_dir).set("m@v1", "champion")
    attempted(store, "m@v1", "01" * 30)
    attempted(store, "m@v5", "01" * 30)
    promote(store, "m@v5", RULE, Actions(data_dir))
    target = tmp_path / "exports" / "m"
    version = export_model(data_dir, "m@v5", target, evaluations=load_evaluations(store, model="m@v5"))
    assert version.reference == "m@v5"
    for path in model_folder.iterdir():
        name = "README.base.md" if path.name == "README.md" else path.name
        assert (target / name).read_bytes() == path.read_bytes()
    card = ModelCard.load(target / "README.md")
    (indexed,) = card.data.to_dict()["model-index"]
    assert indexed["name"] == "m@v5"
    metrics = [metric for result in indexed["results"] for metric in result["metrics"]]
    assert [(metric["type"], metric["value"]) for metric in metrics] == [("success", 0.5), ("reward", 0.5)]
    assert "| m@v5 | m@v1 | dr_grpo, 20 steps |" in card.text
    assert "| test | 60 | 60 | 50.0% |" in card.text
    assert "| m@v1 | kept | 60 tasks did not show that the candidate is better" in card.text
    lineage = json.loads((target / "spanloop_lineage.json").read_text())
    assert [(each["version"], each["parent"]) for each in lineage] == [("m@v1", None), ("m@v5", "m@v1")]
    assert sorted(path.name for path in target.parent.iterdir()) == ["m"]


@pytest.mark.usefixtures("registry")
def test_what_cannot_be_exported_is_refused(data_dir: DataDir, tmp_path: Path) -> None:
    used = tmp_path / "used"
    used.mkdir()
    (used / "file").write_text("mine")
    for folder in (used, used / "file"):
        with pytest.raises(ConfigurationError, match="in use"):
            export_model(data_dir, "m@v1", folder)
    with pytest.raises(JobError, match="no model version"):
        export_model(data_dir, "nothing", tmp_path / "new")
    Aliases(data_dir).set("m@v1", "champion")
    prune(data_dir, keep=1)
    with pytest.raises(JobError, match="pruned"):
        export_model(data_dir, "m@v2", tmp_path / "new")
    assert (used / "file").read_text() == "mine"
    assert not (tmp_path / "new").exists()
