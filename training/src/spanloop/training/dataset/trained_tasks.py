"""The tasks that a version and its ancestors were trained on."""

from spanloop.evaluation.results.trained_tasks import TrainedTasks, tasks_of_episodes
from spanloop.foundation.paths import DataDir
from spanloop.store import Store
from spanloop.training.dataset.manifest import read_manifest
from spanloop.training.models.base_model import Training
from spanloop.training.models.lineage import last_step, trained_episodes
from spanloop.training.models.registry import Registry


def trained_tasks(store: Store, data_dir: DataDir, reference: str) -> TrainedTasks:
    """Return the tasks in the datasets of a version and its ancestors; of a job without a manifest those it recorded.

    Args:
        store: The store.
        data_dir: With the registry and the folders of the jobs.
        reference: ``name@version``; nothing is known of a model that is not registered.

    Raises:
        StoreError: ClickHouse is unreachable.
    """
    registry = Registry(data_dir)
    episode_ids: set[str] = set()
    for version in registry.lineage(reference) if registry.find(reference) else ():
        if version.training_id is None:
            continue
        manifest = read_manifest(data_dir.jobs / version.training_id)
        if manifest is not None:
            episode_ids.update(pinned.episode_id for pinned in manifest.pinned)
        else:
            episode_ids |= trained_episodes(store, [Training(version.training_id, last_step(version))])
    return tasks_of_episodes(store, sorted(episode_ids))
