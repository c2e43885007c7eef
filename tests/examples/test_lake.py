"""The frozen lake: its lakes, its words, and a whole walk from spans to an episode."""

import json
import tomllib
from collections import Counter
from pathlib import Path

import pytest
from examples.lake import tasks
from examples.lake.tasks import SIZES, make_tasks

from spanloop.evaluation.environments import EnvironmentSettings
from spanloop.store.client import Address

from ..instrumentation.support import EXAMPLES, says
from .attempts import run_acting

SETTINGS = EnvironmentSettings(**tomllib.loads((EXAMPLES / "lake" / "app.toml").read_text())["environment"])
TASK = {"task_id": "test/0", "kwargs": {"desc": ["SFH", "HFF", "FFG"]}}


def test_training_and_test_share_no_lake_with_any_seed() -> None:
    train = {tuple(task.kwargs["desc"]) for seed in range(3) for task in make_tasks("train", 30, seed)}
    test = {tuple(task.kwargs["desc"]) for seed in range(3) for task in make_tasks("test", 30, seed)}
    assert not train & test
    assert Counter(task.difficulty for task in make_tasks("test", 30, 1)) == {f"{size} by {size}": 15 for size in SIZES}
    assert make_tasks("train", 6, 3) == make_tasks("train", 6, 3) != make_tasks("train", 6, 4)


def test_more_lakes_than_there_are_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "TRIES", 3)
    with pytest.raises(ValueError, match=r"not 2000 different lakes; \d+ were found"):
        make_tasks("test", 2000, 0)


@pytest.mark.usefixtures("store")
def test_a_walk_is_an_episode_with_its_tool_calls_and_the_lake_judges_it(address: Address, tmp_path: Path) -> None:
    pytest.importorskip("gymnasium")
    script = (says("right"), says("Hm!"), says("down."), says("Right"), says("down"))
    walked, outcome = run_acting(
        "lake", "walk", settings=SETTINGS, task=TASK, script=script, address=address, data_dir=tmp_path
    )
    assert (walked.errors, walked.answers) == ([], ["left ice, down wall, right wall, up ice. Goal: here."])
    assert (outcome.reward, outcome.steps, outcome.done) == (1.0, 5, True)
    shown = [message["content"] for message in walked.requests[-1]["messages"] if message["role"] == "user"][3:]
    assert shown == [
        "left wall, down hole, right ice, up wall. Goal: 2 down, 2 right.",
        "left ice, down ice, right hole, up wall. Goal: 2 down, 1 right.",
        "Error: Invalid arguments of act: $.action: 'hm' is not one of ['left', 'down', 'right', 'up']. Tools: act.",
        "left hole, down ice, right ice, up ice. Goal: 1 down, 1 right.",
        "left ice, down goal, right wall, up hole. Goal: 1 down.",
    ]
    attributes = [dict(each) for each in walked.spans["SpanAttributes"].to_list()]
    calls = [each for each in attributes if each.get("gen_ai.operation.name") == "execute_tool"]
    actions = Counter(json.loads(each["gen_ai.tool.call.arguments"])["action"] for each in calls)
    assert actions == {"right": 2, "down": 2, "hm": 1}
    (last,) = (each for each in calls if each["spanloop.environment.done"] == "true")
    assert (last["spanloop.environment.reward"], last["gen_ai.tool.call.result"]) == ("1", walked.answers[0])
    assert walked.transitions["episode_id"].n_unique() == 1
    assert walked.transitions.height == 5
