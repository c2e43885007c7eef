from pathlib import Path

import pytest

from spanloop.semconv.enums import JobKind

from .debug_training import debug_plan, train_here, trained_weights, write_dataset


@pytest.mark.parametrize("kind", list(JobKind))
def test_it(kind: JobKind, tiny_model: Path, tmp_path: Path) -> None:
    write_dataset(tiny_model, tmp_path, kind=kind)
    plan = debug_plan(tiny_model, tmp_path, kind=kind)
    steps = train_here(plan)
    print(steps)
    assert trained_weights(plan)
