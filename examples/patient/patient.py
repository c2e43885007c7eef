"""A simulated patient: one question tells two illnesses apart, and the patient says nothing that is not asked.

The agent writes ``ask SYMPTOM`` or ``answer ILLNESS``. The right answer is worth 1 after the right question, and 0.3
without it: half of such answers are wrong.
"""

from pydantic import JsonValue, PrivateAttr

from spanloop.evaluation.environments import Action, Environment, EnvironmentFailedError, Fields, StepResult

GUESSED = 0.3
"""Reward of a right answer without the question."""


def complaint_text(complaint: str, symptom: str, present: str, absent: str) -> str:
    """Return the first words of a patient, with what the handbook says of a symptom and its two illnesses."""
    return f"I have {complaint}. Handbook: {symptom} means {present}, no {symptom} means {absent}."


class Patient(Environment):
    """A patient with one of two illnesses; a symptom tells them apart."""

    _task: dict[str, str] = PrivateAttr(default_factory=dict[str, str])
    _has_asked: bool = PrivateAttr(default=False)

    @property
    def takes_messages(self) -> bool:
        """A patient listens."""
        return True

    def reset(self, task: Fields, seed: int) -> JsonValue:
        """Return the complaint, and what the handbook says of it."""
        del seed
        self._task = {name: str(task.get(name, "")) for name in ("complaint", "symptom", "present", "absent", "has")}
        if "" in self._task.values():
            raise EnvironmentFailedError(f"task {task.get('task_id', '')!r} lacks a field of: {', '.join(self._task)}")
        return complaint_text(*(self._task[name] for name in ("complaint", "symptom", "present", "absent")))

    def step(self, action: Action) -> StepResult:
        """Reply to a question, or judge an answer."""
        verb, _, rest = action.message.strip().strip(".?!").lower().partition(" ")
        match verb:
            case "ask":
                return self._reply(rest.strip())
            case "answer":
                return self._judge(rest.strip())
            case _:
                return StepResult("Say: ask, or answer.", reward=0.0, error=True)

    def _reply(self, question: str) -> StepResult:
        if self._task["symptom"] not in question:
            return StepResult("I do not know.", reward=0.0)
        self._has_asked = True
        yes = self._task["has"] == self._task["present"]
        return StepResult("Yes." if yes else "No.", reward=0.0)

    def _judge(self, answer: str) -> StepResult:
        is_right = answer == self._task["has"]
        reward = (1.0 if self._has_asked else GUESSED) * is_right
        reason = (
            f"It is {self._task['has']}; the answer was {answer!r}, "
            f"{'after' if self._has_asked else 'without'} the question about {self._task['symptom']}."
        )
        components = {"right": GUESSED * is_right, "asked": reward - GUESSED * is_right}
        return StepResult(
            "Thank you.",
            reward=reward,
            done=True,
            success=is_right and self._has_asked,
            reason=reason,
            components=components,
        )
