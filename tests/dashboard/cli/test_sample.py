"""`spanloop up --sample`: the recordings of the wheel fill a data directory of their own, and every page."""

from pathlib import Path

import pytest

from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.paths import DataDir
from spanloop.runtime import sample
from spanloop.store import connect
from spanloop.training.models.registry import Registry
from spanloop.training.run.job_api import JobApi


def test_the_recordings_fill_a_new_data_directory_once(tmp_path: Path) -> None:
    directory = DataDir(tmp_path / "sample")
    assert sample.restore_sample(directory)
    assert not sample.restore_sample(directory)
    assert [model.reference for model in Registry(directory).list()] == ["tiny@v2", "tiny@v1"]
    assert JobApi(directory).list()
    with connect(directory, start=True) as store:
        counted = store.query("dashboard_totals", since_s=0).row(0, named=True)
        assert counted["episodes"] > 10
        assert counted["trainable_transitions"] > 10
        assert not store.query("dashboard_metric_jobs", max_rows=5).is_empty()
        sessions = store.connection.query(
            "SELECT uniq(session_id) FROM episodes WHERE session_id != ''", doing="counting"
        )
        assert sessions.item() == 3
        evaluated = store.connection.query("SELECT DISTINCT model FROM evaluations", doing="listing")
        assert set(evaluated["model"]) == {"tiny@v1", "tiny@v2"}


def test_a_directory_with_other_data_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("data")
    with pytest.raises(ConfigurationError, match="not empty"):
        sample.restore_sample(DataDir(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
