"""Gymnasium's environments, and simulated users."""

from pathlib import Path
from typing import Any

import pytest

from spanloop.evaluation.environments import Action, EnvironmentFailedError, StepResult
from spanloop.evaluation.environments.gymnasium_environment import GymnasiumEnvironment
from spanloop.evaluation.environments.gymnasium_environment import action_schema as schema
from spanloop.evaluation.environments.user_environment import UserEnvironment
from spanloop.semconv.environment import DATA_DIR_ENV

from ...instrumentation.support import modelling, says

LAKE = {"id": "FrozenLake-v1", "kwargs": '{"is_slippery": false, "desc": ["SF", "HG"]}'}
"""Start, frozen; hole, goal."""
SCRIPT: list[dict[str, Any]] = [
    {"when": r"\border\b", "say": "It is order 17."},
    {"when": "17", "say": "Thanks.", "reward": 1.0, "done": True, "reason": "The agent knows the order."},
]


def test_an_environment_of_gymnasium_has_one_tool_for_its_action() -> None:
    pytest.importorskip("gymnasium")
    lake = GymnasiumEnvironment(**LAKE, actions="left,down,right,up", text="ansi")
    first = str(lake.reset({"task_id": "t"}, 3))
    assert "observation: 0" in first
    (tool,) = lake.tools()
    assert tool.name == "act"
    assert tool.parameters["properties"] == {"action": {"type": "string", "enum": ["left", "down", "right", "up"]}}
    right = lake.step(Action("act", {"action": "right"}))
    assert (right.reward, right.done) == (0.0, False)
    assert (lake.step(Action("act", {"action": "down"})).reward, lake.reset({}, 3) == first) == (1.0, True)
    lake.close()
    numbers = GymnasiumEnvironment(**LAKE)
    numbers.reset({}, 0)
    assert numbers.tools()[0].parameters["properties"] == {"action": {"type": "integer", "minimum": 0, "maximum": 3}}
    assert numbers.step(Action("act", {"action": 1})) == StepResult(2, 0.0, done=True)
    numbers.close()


def test_a_task_changes_the_arguments_and_the_seed() -> None:
    pytest.importorskip("gymnasium")
    lake = GymnasiumEnvironment(**LAKE)
    assert lake.reset({"kwargs": {"desc": ["SFF", "FFG"]}, "seed": 1}, 9) == 0
    assert lake.step(Action("act", {"action": 1})) == StepResult(3, 0.0)
    lake.close()
    with pytest.raises(EnvironmentFailedError, match="kwargs is '3', expected a JSON object"):
        lake.reset({"kwargs": "3"}, 0)
    named = GymnasiumEnvironment(**LAKE, actions="left,right")
    named.reset({}, 0)
    with pytest.raises(EnvironmentFailedError, match="actions names 2 actions, and the environment has 4"):
        named.tools()
    named.close()


def test_other_action_spaces_become_schemas() -> None:
    spaces = pytest.importorskip("gymnasium.spaces")
    assert schema(spaces.MultiBinary(3), [])["minItems"] == 3
    assert schema(spaces.MultiDiscrete([2, 3]), [])["minItems"] == 2
    assert schema(spaces.Box(-1, 1, (2,)), [])["items"] == {"type": "number"}
    assert schema(spaces.Text(5), [])["maxLength"] == 5
    with pytest.raises(EnvironmentFailedError, match="has no tool"):
        schema(spaces.Box(-1, 1, (2, 2)), [])


def test_a_user_of_a_script_answers_by_the_first_line_that_matches() -> None:
    user = UserEnvironment()
    task: Any = {"task_id": "t", "question": "Where is my parcel?", "script": SCRIPT}
    assert user.takes_messages
    assert user.reset(task, 0) == "Where is my parcel?"
    assert user.step(Action("", {}, "Hm.")) == StepResult("I do not understand.")
    assert user.step(Action("", {}, "Which ORDER?")) == StepResult("It is order 17.")
    last = user.step(Action("", {}, "17 is on its way"))
    assert last == StepResult("Thanks.", 1.0, done=True, reason="The agent knows the order.")
    with pytest.raises(EnvironmentFailedError, match="task 't' lacks the field 'script'"):
        user.reset({"task_id": "t", "question": "?"}, 0)


def test_a_user_that_a_model_plays_keeps_its_goal_and_ends_the_episode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DATA_DIR_ENV, str(tmp_path))
    monkeypatch.chdir(tmp_path)
    user = UserEnvironment(model="player")
    task: Any = {"task_id": "t", "question": "Hello", "goal": "a refund of order 17"}
    with pytest.raises(EnvironmentFailedError, match=r"'player' is not in spanloop.toml; .models. has: none"):
        user.reset(task, 0)
    with modelling() as model:
        (tmp_path / "spanloop.toml").write_text(f'[models.player]\nurl = "{model.url}"\nmodel = "m"\nmax_calls = 2\n')
        model.script = (says("Order 17."), says("Great! [DONE]"))
        assert user.reset(task, 0) == "Hello"
        assert user.step(Action("", {}, "Which order?")) == StepResult("Order 17.")
        last = user.step(Action("", {}, "It is refunded."))
        assert (last.observation, last.reward, last.done, last.success) == ("Great!", 1.0, True, True)
        prompt = model.requests[0]["messages"][0]["content"]
        assert "a refund of order 17" in prompt
        assert "Which order?" in prompt
        with pytest.raises(EnvironmentFailedError, match="the user's model gave no answer: The budget of model"):
            user.step(Action("", {}, "More?"))
