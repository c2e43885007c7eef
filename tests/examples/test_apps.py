"""The office of apps: its tasks, its checks, the final state, and a whole attempt from spans to an episode."""

import json
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from apps import Apps
from examples.apps.tasks import KINDS, NAMES, TOPICS, Task, make_tasks

from spanloop.evaluation.environments import Action, EnvironmentFailedError, EnvironmentSettings, StepResult, tool_json
from spanloop.store.client import Address

from ..instrumentation.support import EXAMPLES, calls
from .attempts import run_acting

SETTINGS = EnvironmentSettings(**tomllib.loads((EXAMPLES / "apps" / "app.toml").read_text())["environment"])


def started(task: Task) -> Apps:
    apps = Apps()
    fields: dict[str, Any] = task._asdict()
    assert apps.reset(fields, 0) == task.request
    return apps


def use(apps: Apps, tool: str, **arguments: Any) -> StepResult:
    return apps.step(Action(tool, arguments))


def solve(apps: Apps, task: Task) -> None:
    """Write what the task asks for."""
    for recipient, amount in task.writes.get("payments", []):
        use(apps, "pay", recipient=recipient, amount=amount)
    for day, hour, title in task.writes.get("calendar", []):
        use(apps, "add_entry", day=day, hour=hour, title=title)
    for _, recipient, text in task.writes.get("mail", []):
        use(apps, "send_mail", recipient=recipient, text=text)


def test_training_and_test_share_no_name_topic_or_amount() -> None:
    for words in (NAMES, TOPICS):
        assert not set(words["train"]) & set(words["test"])
    tasks = make_tasks("test", 30, 0)
    assert Counter(task.type for task in tasks) == dict.fromkeys(KINDS, 10)
    assert tasks == make_tasks("test", 30, 0) != make_tasks("test", 30, 1)


@pytest.mark.parametrize("task", make_tasks("test", 6, 2), ids=lambda task: task.id)
def test_the_final_state_decides_and_nothing_else_may_be_written(task: Task) -> None:
    apps = started(task)
    assert use(apps, "finish").success is False
    solve(apps, task)
    last = use(apps, "finish")
    assert (last.reward, last.done, last.success, last.reason) == (
        1.0,
        True,
        True,
        "The database has the expected state.",
    )
    use(apps, "write_file", name="more.txt", text="more")
    assert use(apps, "finish").reason == "Other than expected: files."
    apps.close()


def test_a_demonstration_is_an_attempt_that_does_its_task(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / "apps" / "tasks.py"), str(tmp_path), "--train", "6", "--test", "1"]
    subprocess.run([*command, "--demonstrations", "6"], check=True)
    tasks, dialogs = (
        [json.loads(line) for line in (tmp_path / f"{name}.jsonl").read_text().splitlines()]
        for name in ("train", "demonstrations")
    )
    assert len(tasks) == len(dialogs) == 6
    for task, dialog in zip(tasks, dialogs, strict=True):
        apps, messages = started(Task(**task)), dialog["messages"]
        assert messages[1] == {"role": "user", "content": task["request"]}
        results = [
            use(apps, call["function"]["name"], **json.loads(call["function"]["arguments"]))
            for message in messages
            for call in message.get("tool_calls", ())
        ]
        answers = [message["content"] for message in messages if message["role"] == "tool"]
        assert [result.observation for result in results] == [*answers, "Done."]
        assert results[-1].success
        assert dialog["tools"] == [tool_json(tool) for tool in apps.tools()]
        apps.close()


@pytest.mark.parametrize(
    ("tool", "arguments", "message"),
    [
        ("send_mail", {"recipient": "zoe", "text": "hi"}, "Error: 'zoe' is no contact; contacts: ines, jack"),
        ("pay", {"recipient": "zoe", "amount": 1}, "Error: 'zoe' is no contact"),
        ("pay", {"recipient": "kim", "amount": 0}, "Error: amount is 0, expected 1 to 1000."),
        ("pay", {"recipient": "kim", "amount": 1001}, "Error: amount is 1001, expected 1 to 1000."),
        ("add_entry", {"day": "2027-02-30", "hour": 9, "title": "x"}, "Error: day is '2027-02-30', expected one"),
        ("add_entry", {"day": "2027-02-03", "hour": 7, "title": "x"}, "Error: hour is 7, expected 8 to 18."),
        ("read_file", {"name": "none.txt"}, "Error: There is no file 'none.txt'."),
        ("write_file", {"name": "../x", "text": "x"}, "Error: '../x' is no name of a file"),
    ],
)
def test_every_write_is_checked(tool: str, arguments: dict[str, Any], message: str) -> None:
    apps = started(make_tasks("test", 1, 0)[0])
    before = apps.state()
    result = use(apps, tool, **arguments)
    assert (result.error, str(result.observation)[: len(message)], apps.state()) == (True, message, before)


def test_a_task_without_rows_is_named() -> None:
    with pytest.raises(EnvironmentFailedError, match="task 't' has no usable rows"):
        Apps().reset({"task_id": "t"}, 0)


@pytest.mark.slow  # test_lake.py has one such attempt among the fast tests
@pytest.mark.usefixtures("store")
def test_an_attempt_is_an_episode_with_its_tool_calls(address: Address, tmp_path: Path) -> None:
    task = make_tasks("test", 1, 0)[0]
    ((recipient, amount),) = task.writes["payments"]
    file = task.rows["files"][1][0]
    script = (
        calls("read_mail", {"sender": recipient}, "c1"),
        calls("read_file", {"name": "nothing.txt"}, "c2"),
        calls("read_file", {"name": file}, "c3"),
        calls("pay", {"recipient": recipient, "amount": amount}, "c4"),
        calls("finish", {}, "c5"),
    )
    fields = {"task_id": task.id, **{name: value for name, value in task._asdict().items() if name != "id"}}
    worked, outcome = run_acting(
        "apps", "work", settings=SETTINGS, task=fields, script=script, address=address, data_dir=tmp_path
    )
    assert worked.errors == []
    assert (outcome.reward, outcome.success, outcome.steps) == (1.0, True, 5)
    assert (worked.transitions.height, worked.transitions["episode_id"].n_unique()) == (5, 1)
    spans = [dict(each) for each in worked.spans["SpanAttributes"].to_list()]
    tools = [each for each in spans if each.get("gen_ai.operation.name") == "execute_tool"]
    assert len(tools) == 5
    assert sum("spanloop.environment.done" in each for each in tools) == 5
