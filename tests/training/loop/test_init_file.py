"""``spanloop init``: what it fills in from stored episodes, and what it marks."""

import json
import tomllib
from pathlib import Path

import pytest

from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.paths import DataDir
from spanloop.store import Store
from spanloop.training.loop.app_file import UNKNOWN, read_app
from spanloop.training.loop.init_file import write_app_file
from spanloop.training.models.registry import Registry

from ..training_seeding import STARTED_AT, episode_row, insert, transition_row
from .support import write_model_folder


def question(number: int) -> str:
    text = {"type": "text", "content": f"What cost {number} oak desks?"}
    return json.dumps([{"role": "user", "parts": [text]}])


def seed(store: Store, *, service: str = "shop graph", episodes: int = 6, reward: float | None = None) -> None:
    """Insert episodes of a service, each with a question of its own."""
    keys = [f"{service}-{number}" for number in range(episodes)]
    of_all = {"service_name": service, "agent_name": "clerk", "model": "fake-gpt"}
    insert(store, "episodes", [episode_row(key, "", 0, reward) | of_all | {"group_id": key} for key in keys])
    answer = {"role": "assistant", "parts": [{"type": "text", "content": "29 dollars"}]}
    steps = [
        transition_row(key, "", 0, {})
        | {"state": question(number), "action": json.dumps(answer), "tools": json.dumps([{"name": "price"}])}
        for number, key in enumerate(keys)
    ]
    insert(store, "transitions", steps)


def test_it_fills_in_what_spans_tell_and_marks_the_rest(data_dir: DataDir, store: Store, tmp_path: Path) -> None:
    seed(store)
    written = write_app_file(data_dir, store, tmp_path / "app.toml")
    text = written.app.read_text()
    document = tomllib.loads(text)
    assert (document["model"]["name"], document["run"]["tasks"]) == ("shop-graph", "app-train.jsonl")
    assert written.unknown == ("source", "agent", "grader")
    assert document["model"]["called"] == ["fake-gpt"]
    for known in ("fake-gpt", "clerk", "Its tools were: price.", "6 stored episodes"):
        assert known in text
    train, test = (path.read_text().splitlines() for path in (written.train, written.test))
    assert (len(train), len(test)) == (4, 2)
    assert all(json.loads(line)["prompt"].startswith("What cost ") for line in (*train, *test))
    with pytest.raises(ConfigurationError, match=r"model.source, run.agent, run.grader: not filled in yet"):
        read_app(written.app)
    for value in ("smollm2", "python app.py --ask {prompt}", "exact"):
        text = text.replace(f'= "{UNKNOWN}"', f'= "{value}"', 1)
    written.app.write_text(text)
    assert read_app(written.app).run.grader


def test_rewards_of_the_app_need_no_grader(data_dir: DataDir, store: Store, tmp_path: Path) -> None:
    seed(store, reward=1.0)
    written = write_app_file(data_dir, store, tmp_path / "app.toml")
    assert written.unknown == ("source", "agent")
    assert "6 of the 6 episodes have a reward that the app sent" in written.app.read_text()


def test_a_file_after_a_loop_asks_for_the_grader_again_and_keeps_the_names(
    data_dir: DataDir, store: Store, tmp_path: Path
) -> None:
    seed(store)
    attempt: dict[str, object] = {
        "run_id": "shop-v1",
        "task_id": "t",
        "attempt": 1,
        "episode_id": "key-of-an-attempt",
        "grader": "exact",
    }
    insert(store, "attempts", [attempt | {"started_at": STARTED_AT}])
    judged = episode_row("judged", "", 1, 0.25) | {"service_name": "shop graph", "model": "shop@v1"}
    insert(store, "episodes", [judged | {"episode_key": "key-of-an-attempt", "group_id": "judged"}])
    Registry(data_dir).add("shop", write_model_folder(tmp_path / "weights"))
    written = write_app_file(data_dir, store, tmp_path / "app.toml")
    document = tomllib.loads(written.app.read_text())
    assert document["model"] == {"name": "shop", "called": ["fake-gpt"]}
    assert written.unknown == ("agent", "grader")


def test_a_file_that_exists_stays(data_dir: DataDir, store: Store, tmp_path: Path) -> None:
    seed(store)
    (tmp_path / "app.toml").write_text("mine")
    with pytest.raises(ConfigurationError, match=r"app.toml in .* exist already"):
        write_app_file(data_dir, store, tmp_path / "app.toml")
    assert [each.name for each in tmp_path.glob("*.toml")] == ["app.toml"]
    assert not list(tmp_path.glob("*.jsonl"))


def test_a_service_is_named_where_there_are_several(data_dir: DataDir, store: Store, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="No episode is stored yet"):
        write_app_file(data_dir, store, tmp_path / "app.toml")
    seed(store, service="shop")
    seed(store, service="office", episodes=1)
    with pytest.raises(ConfigurationError, match="several services"):
        write_app_file(data_dir, store, tmp_path / "app.toml")
    with pytest.raises(ConfigurationError, match="No episode of a service 'shopp'") as caught:
        write_app_file(data_dir, store, tmp_path / "app.toml", service="shopp")
    assert caught.value.next_step == "Did you mean shop?"
    assert write_app_file(data_dir, store, tmp_path / "app.toml", service="shop").service.episodes == 6
