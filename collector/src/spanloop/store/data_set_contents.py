"""Contents of a data set's version: composition, steps that cannot be trained on, and tasks that evaluations share."""

import polars as pl

from .data_sets import DataSet
from .store import Store


def fetch_composition(store: Store, data_set: DataSet) -> pl.DataFrame:
    """Return ``field``, ``value`` and ``episodes``, the most frequent value of a field first.

    The fields are those of the pages' filters: outcome, service, agent, model, policy, owner, class and judged.
    """
    return store.query("data_set_composition", data_set_id=data_set.data_set_id)


def fetch_rejections(store: Store, data_set: DataSet) -> pl.DataFrame:
    """Return ``reason``, ``steps`` and ``episodes``; the reason is empty for steps that can be trained on."""
    return store.query("data_set_rejections", data_set_id=data_set.data_set_id)


def fetch_leakage(store: Store, data_set: DataSet) -> pl.DataFrame:
    """Return the evaluations with shared tasks or episodes, most episodes first.

    The columns are ``evaluation_id``, ``name``, ``model``, ``task_set``, ``tasks``, ``shared_tasks``, ``episodes``
    (of the data set, attempts at a shared task) and ``shared_episodes`` (of the data set, counted by the evaluation).
    """
    return store.query("data_set_leakage", data_set_id=data_set.data_set_id)
