# pyright: basic
"""Run verl's trainer, workers and engine in this process, without Ray workers and TransferQueue.

The backbone ``debug``: a breakpoint in a loss, an engine or the trainer stops this process. verl's trainer is
unchanged; what it asks Ray for is replaced while :func:`debug_backbone` is open. Its worker groups call verl's workers
directly, and its queue is a dictionary. So a step computes the same as on the Ray path, from the same rows in the same
order.
"""

import copy
from collections import defaultdict
from collections.abc import Generator, Iterable
from contextlib import ExitStack, contextmanager
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import ray
import torch
import transfer_queue
from tensordict import NonTensorData, TensorDict
from transfer_queue import KVBatchMeta
from transfer_queue.storage.managers.simple_storage_manager import AsyncSimpleStorageManager
from verl.single_controller.base.decorator import MAGIC_ATTR
from verl.single_controller.ray import ResourcePoolManager
from verl.trainer.ppo.v1 import trainer_base
from verl.utils import tensordict_utils as tu

_QUEUE_CALLS = ("kv_put", "kv_batch_put", "kv_batch_get", "kv_list", "kv_clear", "save_checkpoint", "load_checkpoint")


class InProcessQueue:
    """TransferQueue's key-value calls over a dictionary; batches are packed as TransferQueue packs them."""

    def __init__(self) -> None:
        self._fields: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
        self._tags: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)

    def kv_put(self, key: str, partition_id: str, fields: Any = None, tag: dict[str, Any] | None = None) -> KVBatchMeta:
        """Store the values of one key, and update its tag."""
        self._fields[partition_id].setdefault(key, {}).update(fields or {})
        self._tags[partition_id].setdefault(key, {}).update(tag or {})
        return self._described([key], partition_id)

    def kv_batch_put(
        self, keys: list[str], partition_id: str, fields: Any = None, tags: list[dict[str, Any]] | None = None
    ) -> KVBatchMeta:
        """Store a TensorDict with one row for each key, and update the keys' tags."""
        columns = {} if fields is None else {name: _rows(fields[name]) for name in fields.keys()}  # noqa: SIM118 - a TensorDict iterates over rows
        for index, key in enumerate(keys):
            row = {name: values[index] for name, values in columns.items()}
            self.kv_put(key, partition_id, row, tags[index] if tags else None)
        return self._described(keys, partition_id)

    def kv_batch_get(
        self, keys: list[str] | str, partition_id: str, select_fields: list[str] | str | None = None
    ) -> TensorDict:
        """Return the rows of ``keys``; selected fields that were never stored are left out, as in TransferQueue."""
        keys = [keys] if isinstance(keys, str) else keys
        selected = [select_fields] if isinstance(select_fields, str) else select_fields
        rows = [self._fields[partition_id][key] for key in keys]
        names = rows[0].keys() if selected is None else [name for name in selected if name in rows[0]]
        manager: Any = AsyncSimpleStorageManager
        pack = manager._pack_field_values  # noqa: SLF001 - the packing that workers of the Ray path get
        return TensorDict({name: pack([row[name] for row in rows]) for name in names}, batch_size=len(rows))

    def kv_list(self, partition_id: str | None = None) -> dict[str, dict[str, Any]]:
        """Return the tags of all keys by partition, in the order in which they were stored."""
        names = list(self._tags) if partition_id is None else [partition_id]
        return {name: copy.deepcopy(self._tags[name]) for name in names}

    def kv_clear(self, keys: list[str] | str, partition_id: str) -> None:
        """Forget ``keys``."""
        for key in [keys] if isinstance(keys, str) else keys:
            self._fields[partition_id].pop(key, None)
            self._tags[partition_id].pop(key, None)

    def save_checkpoint(self, *_: Any, **__: Any) -> None:
        """Save nothing: between two steps the queue holds no row that a resumed job needs."""

    def load_checkpoint(self, *_: Any, **__: Any) -> None:
        """Start empty, see :meth:`save_checkpoint`."""

    def batch_of(self, meta: KVBatchMeta) -> TensorDict:
        """Return the rows and the settings that ``meta`` describes, as a worker receives them."""
        data = self.kv_batch_get(meta.keys, str(meta.partition_id), meta.fields)
        for name, value in copy.deepcopy(meta.extra_info or {}).items():
            tu.assign_non_tensor_data(tensor_dict=data, key=name, val=value)
        return data

    def _described(self, keys: list[str], partition_id: str) -> KVBatchMeta:
        tags = [self._tags[partition_id][key] for key in keys]
        return KVBatchMeta(keys, tags, partition_id, list(self._fields[partition_id][keys[0]]))


def _rows(column: Any) -> list[Any]:
    return list(column.unbind()) if isinstance(column, torch.Tensor) else list(column)


class _Result:
    """A computed value with the interface of verl's future."""

    futures = ()

    def __init__(self, value: Any) -> None:
        self._value = value

    def get(self) -> Any:
        return self._value


class _LocalWorkers:
    """A worker group of one rank: every call runs verl's worker in this process and thread.

    Args:
        worker: The worker.
        queue: Holds the rows of the batches that calls name.
    """

    world_size = 1

    def __init__(self, worker: Any, queue: InProcessQueue) -> None:
        self._worker = worker
        self._queue = queue
        self._dispatch_info: dict[str, list[int]] = {}

    def _query_dispatch_info(self, _mesh: str) -> list[int]:
        return [0]

    def __getattr__(self, name: str) -> Any:
        return partial(self._call, getattr(self._worker, name))

    def _call(self, method: Any, *args: Any, **kwargs: Any) -> Any:
        meta = next((arg for arg in args if isinstance(arg, KVBatchMeta)), None)
        loaded = [self._queue.batch_of(arg) if isinstance(arg, KVBatchMeta) else arg for arg in args]
        output = method(*loaded, **kwargs)
        if meta is not None and isinstance(output, TensorDict) and output.batch_size:
            output = self._stored(meta, output)
        is_blocking = getattr(method, MAGIC_ATTR, {}).get("blocking", True)
        return output if is_blocking else _Result(output)

    def _stored(self, meta: KVBatchMeta, output: TensorDict) -> KVBatchMeta:
        names = [str(name) for name in output.keys()]  # noqa: SIM118 - a TensorDict iterates over rows
        settings = [name for name in names if isinstance(output.get(name), NonTensorData)]
        rows = output.select(*(name for name in names if name not in settings))
        stored = self._queue.kv_batch_put(meta.keys, str(meta.partition_id), rows)
        stored.extra_info = {name: output[name] for name in settings}
        return stored


class _LocalGroups:
    """verl's colocated worker groups, all in this process."""

    def __init__(self, queue: InProcessQueue, *, ray_cls_with_init: dict[str, Any], **_: Any) -> None:
        self._queue = queue
        self._classes = ray_cls_with_init

    def spawn(self, prefix_set: Iterable[str]) -> dict[str, _LocalWorkers]:
        return {role: _LocalWorkers(self._classes[role](), self._queue) for role in prefix_set}


class _LocalPools(ResourcePoolManager):
    """verl's resource pools as names only: there is no cluster whose resources could be checked."""

    def create_resource_pool(self) -> None:
        self.resource_pool_dict.update((name, name) for name in self.resource_pool_spec)  # type: ignore[misc]


class _NoServers:
    """verl's manager of inference servers, without any."""

    @classmethod
    def create_empty(cls, *_: Any, **__: Any) -> "_NoServers":
        return cls()

    def get_replicas(self) -> list[Any]:
        return []


def _bound(cls: Any, **kwargs: Any) -> Any:
    """Return the constructor of an actor's class with a copy of its arguments, as Ray would send them."""
    return partial(cls.__ray_metadata__.modified_class, **copy.deepcopy(kwargs))


@contextmanager
def debug_backbone() -> Generator[None]:
    """Let verl's trainer run everything in this process until the context ends."""
    queue = InProcessQueue()
    replaced = {
        "ray": SimpleNamespace(remote=ray.remote, get=lambda futures: futures),
        "RayClassWithInitArgs": _bound,
        "create_colocated_worker_cls": lambda class_dict: class_dict,
        "RayWorkerGroup": partial(_LocalGroups, queue),
        "ResourcePoolManager": _LocalPools,
        "RewardLoopManager": lambda **_: SimpleNamespace(reward_loop_worker_handles=[]),
        "LLMServerManager": _NoServers,
    }
    with ExitStack() as stack:
        for name, value in replaced.items():
            stack.enter_context(_replaced(trainer_base, name, value))
        for name in _QUEUE_CALLS:
            stack.enter_context(_replaced(transfer_queue, name, getattr(queue, name)))
        yield


@contextmanager
def _replaced(module: ModuleType, name: str, value: Any) -> Generator[None]:
    original = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, original)
