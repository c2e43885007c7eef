"""Patients, by seed: training and test share no complaint, no symptom and no illness.

python tasks.py FOLDER [--seed 0]
"""

import random
from typing import Final, NamedTuple

from spanloop.evaluation.tasks.task_files import Split, write_task_files

COMPLAINTS: Final[dict[Split, tuple[str, ...]]] = {
    "train": ("a cough", "a headache", "a rash", "back pain", "a cold", "sore eyes", "stomach ache", "swollen feet"),
    "test": ("a runny nose", "chest pain", "dizziness", "joint pain", "itchy skin", "hoarseness"),
}
SYMPTOMS: Final[dict[Split, tuple[str, ...]]] = {
    "train": ("fever", "cramps", "thirst", "chills", "sneezing", "numbness", "sweating", "swelling"),
    "test": ("fatigue", "vomiting", "tremor", "itching", "wheezing", "hunger"),
}
ILLNESSES: Final[dict[Split, tuple[str, ...]]] = {
    "train": ("flu", "gout", "asthma", "migraine", "sinusitis", "eczema", "anemia", "mumps", "sciatica", "colitis"),
    "test": ("bronchitis", "diabetes", "malaria", "scabies", "shingles", "hepatitis", "tetanus", "lupus"),
}


class Task(NamedTuple):
    """A patient."""

    id: str
    complaint: str
    symptom: str
    """Tells the two illnesses apart."""
    present: str
    """The illness with the symptom."""
    absent: str
    """The illness without it."""
    has: str
    """The patient's."""
    difficulty: str
    """The illness with the symptom, or the one without."""
    type: str
    """The same, for weights by type."""


def make_tasks(split: Split, count: int, seed: int) -> list[Task]:
    """Return different patients, half of them with each illness.

    Raises:
        ValueError: Fewer different patients exist.
    """
    rng = random.Random(f"{split} {seed}")
    complaints, symptoms, illnesses = COMPLAINTS[split], SYMPTOMS[split], ILLNESSES[split]
    most = len(complaints) * len(symptoms) * len(illnesses) * (len(illnesses) - 1)
    if count > most:
        raise ValueError(f"there are not {count} different patients, but {most}")
    tasks: list[Task] = []
    seen: set[tuple[str, ...]] = set()
    while len(tasks) < count:
        present, absent = rng.sample(illnesses, 2)
        case = (rng.choice(complaints), rng.choice(symptoms), present, absent)
        if case in seen:
            continue
        seen.add(case)
        has_symptom = len(tasks) % 2 == 0
        kind = "with the symptom" if has_symptom else "without the symptom"
        tasks.append(Task(f"{split}/{len(tasks):03d}", *case, present if has_symptom else absent, kind, kind))
    return tasks


if __name__ == "__main__":
    write_task_files(__doc__, make_tasks)
