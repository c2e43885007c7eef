"""Templates of SQL queries: what is left of a query without its values. They split tasks, and rate their difficulty.

Invariant: no template is both in training and in the test, and each word of a test template occurs in training.
"""

import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Final, Literal

Difficulty = Literal["easy", "medium", "hard"]
DIFFICULTIES: Final[tuple[Difficulty, ...]] = ("easy", "medium", "hard")

_TOKEN: Final = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"|\d+(?:\.\d+)?(?!\w)|\w+|[<>!=]+|[^\w\s]")
_SEVERAL_STEPS: Final = re.compile(r"\b(?:JOIN|GROUP BY|UNION|INTERSECT|EXCEPT)\b|\( SELECT\b|\bFROM [^()]*?,")
_ONE_STEP: Final = re.compile(r"\bWHERE\b|\bORDER BY\b|\b(?:COUNT|SUM|AVG|MIN|MAX) \(|\bDISTINCT\b")
_INNERMOST: Final = re.compile(r"\([^()]*\)")


def template_of(sql: str) -> str:
    """Return the query in upper case, with ``?`` for each value and one space between tokens."""
    return " ".join("?" if token[0] in "'\"" or token[0].isdigit() else token for token in _tokens(sql))


def difficulty_of(sql: str) -> Difficulty:
    """Return ``hard`` for a query with a join, groups or a query inside, else ``medium`` for two clauses or more."""
    text = template_of(sql)
    if _SEVERAL_STEPS.search(text):
        return "hard"
    return "medium" if len(_ONE_STEP.findall(text)) > 1 else "easy"


def is_ordered(sql: str) -> bool:
    """Return whether the rows of the query, not only of one inside it, have an order."""
    outermost = template_of(sql)
    while outermost != (outermost := _INNERMOST.sub("", outermost)):
        pass
    return "ORDER BY" in outermost


def held_out_templates(queries: Iterable[str], share: float, seed: int) -> set[str]:
    """Choose the templates of the test: of each difficulty a ``share``, of words that training has too.

    Args:
        queries: SQL of all tasks.
        share: Of the templates.
        seed: Of the choice.
    """
    by_difficulty: dict[Difficulty, set[str]] = defaultdict(set)
    for sql in queries:
        by_difficulty[difficulty_of(sql)].add(template_of(sql))
    uses = Counter(word for templates in by_difficulty.values() for each in templates for word in set(each.split()))
    rng = random.Random(f"templates {seed}")
    chosen: set[str] = set()
    for difficulty in DIFFICULTIES:
        templates = sorted(by_difficulty[difficulty])
        wanted = round(share * len(templates))
        for template in rng.sample(templates, len(templates)):
            words = set(template.split())
            if wanted and all(uses[word] > 1 for word in words):
                uses.subtract(words)
                chosen.add(template)
                wanted -= 1
    return chosen


def _tokens(sql: str) -> list[str]:
    return [token if token[0] in "'\"" else token.upper() for token in _TOKEN.findall(sql.strip().rstrip(";").strip())]
