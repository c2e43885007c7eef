"""The simulated patient: its cases, what an attempt is worth, and a whole conversation from spans to an episode."""

import tomllib
from collections import Counter
from pathlib import Path

import pytest
from examples.patient.patient import Patient
from examples.patient.tasks import COMPLAINTS, ILLNESSES, SYMPTOMS, make_tasks

from spanloop.evaluation.environments import Action, EnvironmentFailedError, EnvironmentSettings
from spanloop.store.client import Address

from ..instrumentation.support import EXAMPLES, says
from .attempts import run_acting

SETTINGS = EnvironmentSettings(**tomllib.loads((EXAMPLES / "patient" / "app.toml").read_text())["environment"])
TASK = {
    "task_id": "test/0",
    "complaint": "a cough",
    "symptom": "fever",
    "present": "flu",
    "absent": "asthma",
    "has": "asthma",
}


def test_training_and_test_share_no_complaint_symptom_or_illness() -> None:
    for words in (COMPLAINTS, SYMPTOMS, ILLNESSES):
        assert not set(words["train"]) & set(words["test"])
    tasks = make_tasks("test", 40, 0)
    assert len({task[1:5] for task in tasks}) == 40
    assert Counter(task.difficulty for task in tasks) == {"with the symptom": 20, "without the symptom": 20}
    assert tasks == make_tasks("test", 40, 0) != make_tasks("test", 40, 1)
    with pytest.raises(ValueError, match="there are not 9999 different patients"):
        make_tasks("test", 9999, 0)


@pytest.mark.parametrize(
    ("messages", "reward", "success"),
    [
        (("ask fever", "answer asthma"), 1.0, True),
        (("Ask: do you have fever?", "answer flu."), 0.0, False),
        (("answer asthma",), 0.3, False),
        (("ask thirst", "hello", "answer asthma"), 0.3, False),
    ],
)
def test_a_right_answer_is_worth_most_after_the_right_question(
    messages: tuple[str, ...],
    reward: float,
    success: bool,  # noqa: FBT001
) -> None:
    patient = Patient()
    assert patient.reset(TASK, 0) == "I have a cough. Handbook: fever means flu, no fever means asthma."
    last = [patient.step(Action("", {}, message)) for message in messages][-1]
    assert (last.reward, last.done, last.success) == (reward, True, success)
    assert sum(last.components.values()) == pytest.approx(reward)


def test_a_patient_without_a_field_is_named() -> None:
    with pytest.raises(EnvironmentFailedError, match="task 'test/0' lacks a field of: complaint, symptom"):
        Patient().reset({**TASK, "has": ""}, 0)


@pytest.mark.slow  # test_lake.py has one such attempt among the fast tests
@pytest.mark.usefixtures("store")
def test_a_conversation_is_one_episode(address: Address, tmp_path: Path) -> None:
    script = (says("ask fever"), says("answer asthma\nI am sure."))
    treated, outcome = run_acting(
        "patient", "treat", settings=SETTINGS, task=TASK, script=script, address=address, data_dir=tmp_path
    )
    assert (treated.errors, treated.answers) == ([], ["answer asthma"])
    assert (outcome.reward, outcome.success, outcome.steps) == (1.0, True, 2)
    assert outcome.reason == "It is asthma; the answer was 'asthma', after the question about fever."
    assert treated.requests[1]["messages"][-1] == {"role": "user", "content": "No."}
    assert (treated.transitions.height, treated.transitions["episode_id"].n_unique()) == (2, 1)
