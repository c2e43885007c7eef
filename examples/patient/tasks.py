"""Patients, by seed: training and test share no complaint, no symptom and no illness.

python tasks.py FOLDER [--seed 0]
"""

import argparse
import json
import random
from pathlib import Path
from typing import Final, Literal, NamedTuple

Split = Literal["train", "test"]
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


def main() -> None:
    """Write ``train.jsonl`` and ``test.jsonl``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="created if missing")
    parser.add_argument("--seed", type=int, default=0, help="seed of the patients")
    parser.add_argument("--train", type=int, default=96, help="number of training patients; default: %(default)s")
    parser.add_argument("--test", type=int, default=120, help="number of test patients; default: %(default)s")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    counts: dict[Split, int] = {"train": options.train, "test": options.test}
    for split, count in counts.items():
        lines = [json.dumps(task._asdict()) + "\n" for task in make_tasks(split, count, options.seed)]
        (options.folder / f"{split}.jsonl").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
