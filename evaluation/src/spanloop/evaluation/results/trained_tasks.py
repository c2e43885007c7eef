"""By what the tasks of a training are recognised, and which evaluated tasks are among them.

A task is recognised by its id, by the digest of its record where the task runner made the attempt, and by what the
policy saw first. Invariant: equal first messages are evidence only where they belong to one task id on each side: an
agent that reads its task later begins all of them alike.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import polars as pl

from spanloop.store import Store

_PAGE: Final = 2_000


class TrainedTasks(NamedTuple):
    """By what the tasks of training are recognised."""

    ids: frozenset[str] = frozenset()
    digests: frozenset[str] = frozenset()
    """Of the tasks' records."""
    prompts: frozenset[str] = frozenset()
    """Digests of what the policy saw first, of those that belong to one task."""


NOTHING_TRAINED: Final = TrainedTasks()


def tasks_of_episodes(store: Store, episode_ids: Sequence[str]) -> TrainedTasks:
    """Return the tasks of stored episodes, such as those of a training's dataset.

    Raises:
        StoreError: ClickHouse is unreachable.
    """
    contents = _contents(store, episode_ids)
    return TrainedTasks(
        frozenset(contents["task_id"]) - {""},
        frozenset(contents["task_digest"]) - {""},
        frozenset(_tasks_of_prompts(contents)),
    )


def trained_task_ids(store: Store, attempts: pl.DataFrame, trained: TrainedTasks) -> frozenset[str]:
    """Return the ids of the attempted tasks that are among the trained ones.

    Args:
        store: The store.
        attempts: Columns ``episode_id``, ``revision`` (0 without an episode), ``task_id`` and ``task_digest``.
        trained: What was trained.

    Raises:
        StoreError: ClickHouse is unreachable.
    """
    found = set(attempts.filter(pl.col("task_id").is_in(list(trained.ids)))["task_id"])
    found |= set(attempts.filter(pl.col("task_digest").is_in(list(trained.digests)))["task_id"])
    if trained.prompts:
        episode_ids = attempts.filter(pl.col("revision") > 0)["episode_id"].to_list()
        tasks_of = _tasks_of_prompts(_contents(store, episode_ids))
        found |= {task for prompt, task in tasks_of.items() if prompt in trained.prompts}
    return frozenset(found)


def _contents(store: Store, episode_ids: Sequence[str]) -> pl.DataFrame:
    pages = [store.query("evaluation_contents", episode_ids=page) for page in _pages(episode_ids)]
    columns = ("episode_id", "task_id", "task_digest", "prompt_digest")
    return pl.concat(pages) if pages else pl.DataFrame(schema=dict.fromkeys(columns, pl.String))


def _tasks_of_prompts(contents: pl.DataFrame) -> dict[str, str]:
    """Return the task of each digest of first messages that belongs to one task only."""
    tasks: defaultdict[str, set[str]] = defaultdict(set)
    for task, prompt in contents.select("task_id", "prompt_digest").iter_rows():
        tasks[prompt].add(task)
    return {prompt: next(iter(ids)) for prompt, ids in tasks.items() if prompt and len(ids) == 1}


def _pages(items: Sequence[str]) -> Iterator[Sequence[str]]:
    return (items[start : start + _PAGE] for start in range(0, len(items), _PAGE))
