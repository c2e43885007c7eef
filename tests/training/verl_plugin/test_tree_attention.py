# pyright: basic
"""Attention by the calls of a plan, with the kernel for CPUs in place of CUDA's, against a dense mask in float64."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spanloop.training.verl_plugin.engine.attention_kernels import CUDA_BACKWARD, CUDA_FORWARD, kernel_for
from spanloop.training.verl_plugin.engine.attention_plan import AttentionPlan, plan_attention
from spanloop.training.verl_plugin.engine.prefix_tree import PackedRows, Segment
from spanloop.training.verl_plugin.engine.tree_attention import TreeAttention

CPU = torch.device("cpu")
HEADS, KEY_HEADS, SIZE, SCALE = 4, 2, 8, 0.3


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Several threads would wait for each other over tensors of this size."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@st.composite
def trees(draw: st.DrawFn) -> PackedRows:
    """Segments of one to five tokens in depth-first order, each below any segment of the path to its predecessor."""
    lengths = draw(st.lists(st.integers(1, 5), min_size=1, max_size=9))
    parents: list[int] = []
    path: list[int] = []
    for number in range(len(lengths)):
        path = path[: draw(st.integers(0, len(path)))]
        parents.append(path[-1] if path else -1)
        path = [*path, number]
    starts = [0, *itertools.accumulate(lengths)]
    ends = starts[1:]
    for number in reversed(range(len(lengths))):
        if parents[number] >= 0:
            ends[parents[number]] = max(ends[parents[number]], ends[number])
    segments = (Segment(*each) for each in zip(starts[:-1], starts[1:], ends, strict=True))
    return PackedRows(tuple(segments), (), starts[-1])


def visible(layout: PackedRows) -> torch.Tensor:
    """Whether a query (first dimension) attends to a key."""
    ends = torch.empty(layout.tokens, dtype=torch.int64)
    for part in layout.segments:
        ends[part.begin : part.end] = part.subtree_end
    position = torch.arange(layout.tokens)
    return (position[None, :] <= position[:, None]) & (position[:, None] < ends[None, :])


def inputs(tokens: int, dtype: torch.dtype) -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(tokens)
    sizes = (HEADS, KEY_HEADS, KEY_HEADS, HEADS)
    return [torch.randn(tokens, heads, SIZE, generator=draw).to(dtype) for heads in sizes]


def dense(layout: PackedRows) -> list[torch.Tensor]:
    """Output and gradients of attention with a mask, float64."""
    query, key, value, upstream = (each.requires_grad_() for each in inputs(layout.tokens, torch.float64))
    keys, values = (each.repeat_interleave(HEADS // KEY_HEADS, 1) for each in (key, value))
    scores = torch.einsum("qhd,khd->hqk", query, keys) * SCALE
    weights = scores.masked_fill(~visible(layout), -torch.inf).softmax(2)
    output = torch.einsum("hqk,khd->qhd", weights, values)
    return [output.detach(), *torch.autograd.grad(output, (query, key, value), upstream)]


def planned(layout: PackedRows, plan: AttentionPlan, dtype: torch.dtype) -> list[torch.Tensor]:
    query, key, value, upstream = (each.requires_grad_() for each in inputs(layout.tokens, dtype))
    output: Any = TreeAttention.apply(query, key, value, plan, SCALE)  # type: ignore[no-untyped-call]
    return [output.detach(), *torch.autograd.grad(output, (query, key, value), upstream)]


def differences(layout: PackedRows, dtype: torch.dtype, longest_run: int | None) -> list[float]:
    """Relative ones; a gradient that is zero, as that of a query with one key, is compared with its size elsewhere."""
    results = planned(layout, plan_attention(layout, CPU, longest_run=longest_run), dtype)
    return [
        float((one.double() - other).norm() / other.norm().clamp(min=0.1))
        for one, other in zip(results, dense(layout), strict=True)
    ]


@settings(max_examples=30, deadline=None)
@given(layout=trees(), longest_run=st.sampled_from([None, 1, 3]))
def test_the_calls_of_a_plan_are_attention_over_the_tree(layout: PackedRows, longest_run: int | None) -> None:
    assert max(differences(layout, torch.float64, longest_run)) < 1e-12
    assert max(differences(layout, torch.float32, longest_run)) < 1e-5


@given(layout=trees(), longest_run=st.sampled_from([None, 1, 3]))
def test_each_pair_of_tokens_is_in_one_call(layout: PackedRows, longest_run: int | None) -> None:
    plan = plan_attention(layout, CPU, longest_run=longest_run)
    count = torch.zeros(layout.tokens, layout.tokens, dtype=torch.int64)
    position = torch.arange(layout.tokens)
    for start, end in itertools.pairwise(plan.segments.starts):
        count[start:end, start:end] += torch.ones(end - start, end - start, dtype=torch.int64).tril()
    for level in plan.levels:
        queries, keys = position[level.query_index], position[level.key_index]
        assert (len(queries), len(keys)) == (level.queries.starts[-1], level.keys.starts[-1])
        runs = zip(itertools.pairwise(level.queries.starts), itertools.pairwise(level.keys.starts), strict=True)
        for (query_start, query_end), (key_start, key_end) in runs:
            assert query_end - query_start <= min(longest_run or layout.tokens, level.queries.longest)
            assert key_end - key_start <= level.keys.longest
            count[queries[query_start:query_end, None], keys[None, key_start:key_end]] += 1
    assert count.equal(visible(layout).long())
    assert plan.segments.starts_on_device.tolist() == list(plan.segments.starts)


def test_bfloat16_inputs_are_attended_to_in_float32() -> None:
    layout = PackedRows((Segment(0, 20, 60), Segment(20, 40, 40), Segment(40, 60, 60)), (), 60)
    assert max(differences(layout, torch.bfloat16, None)) < 6e-3


@pytest.mark.parametrize(
    ("operator", "names", "results"),
    [
        (
            CUDA_FORWARD,
            "query key value cum_seq_q cum_seq_k max_q max_k dropout_p is_causal return_debug_mask scale",
            ["output", "softmax_logsumexp", "rng_state", "unused", "debug_attn_mask"],
        ),
        (
            CUDA_BACKWARD,
            (
                "grad_out query key value out logsumexp cum_seq_q cum_seq_k max_q max_k dropout_p is_causal rng_state "
                "unused scale"
            ),
            ["", "", ""],
        ),
    ],
)
def test_the_operators_of_cuda_have_the_arguments_that_the_kernel_gives(
    operator: Any, names: str, results: list[str]
) -> None:
    """Builds of torch for CPUs have the schemas too; what torch adds is optional."""
    schema = operator.default._schema
    required = [argument for argument in schema.arguments if not argument.has_default_value()]
    assert [argument.name for argument in required] + ["scale"] == names.split()
    assert next(each for each in schema.arguments if each.name == "scale").kwarg_only
    assert [str(result.name or "") for result in schema.returns] == results


def test_another_device_is_refused() -> None:
    with pytest.raises(ValueError, match="on meta, expected cpu or cuda"):
        kernel_for(torch.device("meta"))
