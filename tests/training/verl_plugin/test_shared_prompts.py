# pyright: basic
# torch is half annotated, and this is all torch
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from spanloop.training.models import memory_estimate
from spanloop.training.verl_plugin.engine.attention_plan import plan_attention
from spanloop.training.verl_plugin.engine.packed_batch import micro_batches, pack_batch, split_into
from spanloop.training.verl_plugin.engine.prefix_tree import pack, packed_tokens
from spanloop.training.verl_plugin.engine.token_logprobs import token_logprobs
from spanloop.training.verl_plugin.engine.tree_attention import ATTENTION, tree_attention

WORDS = 61
SHAPE = {
    "vocab_size": WORDS,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 512,
    "attn_implementation": "sdpa",
}
FAMILIES: dict[str, tuple[Any, Any]] = {
    "llama": (LlamaConfig, LlamaForCausalLM),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM),
}
ALL_ATTENTION_FUNCTIONS.register(ATTENTION, tree_attention)
CPU = torch.device("cpu")


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Several threads would wait for each other over tensors of this size."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def make(family: str) -> Any:
    torch.manual_seed(0)
    config, model = FAMILIES[family]
    return model(config(**SHAPE))


MODELS = {family: make(family) for family in FAMILIES}

tokens = st.integers(0, WORDS - 1)


def run(length: int) -> st.SearchStrategy[list[int]]:
    return st.lists(tokens, min_size=length, max_size=length)


@st.composite
def families_of_rows(draw: st.DrawFn) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Rows that branch off from each other at drawn places, and masks of their ends."""
    rows: list[list[int]] = []
    for _ in range(draw(st.integers(1, 6))):
        beginning: list[int] = []
        if rows:
            other = draw(st.sampled_from(rows))
            beginning = other[: draw(st.sampled_from([0, 1, 15, 16, 17, 40, len(other) - 1, len(other)]))]
        added = draw(run(draw(st.sampled_from([0, 1, 2, 17, 50]))))
        rows.append(beginning + added or draw(run(1)))
    masks = [draw(st.lists(st.integers(0, 1), min_size=0, max_size=len(row)).map(torch.tensor)) for row in rows]
    return [torch.tensor(row) for row in rows], [mask.long() for mask in masks]


def unshared(model: Any, rows: list[torch.Tensor], temperature: float) -> list[torch.Tensor]:
    """For each row the log-probability of every token after the first: a forward pass of its own."""
    model.set_attn_implementation("sdpa")
    found = []
    for row in rows:
        scores = (model(row[None]).logits[0] / temperature).log_softmax(-1)
        found.append(scores[:-1].gather(1, row[1:, None]).squeeze(1))
    return found


def shared(model: Any, rows: list[torch.Tensor], masks: list[torch.Tensor], temperature: float) -> torch.Tensor:
    model.set_attn_implementation(ATTENTION)
    batch = pack_batch(rows, masks)
    hidden = model.model(
        input_ids=batch.input_ids,
        position_ids=batch.position_ids,
        attention_plan=plan_attention(batch.layout, CPU),
        use_cache=False,
    ).last_hidden_state[0, batch.logits_at]
    logprobs = token_logprobs(hidden, model.lm_head.weight, batch.rows, batch.labels, temperature).logprobs
    return batch.scatter(logprobs)


def gradients(model: Any, loss: torch.Tensor) -> list[torch.Tensor]:
    model.zero_grad()
    if loss.requires_grad:
        loss.backward()
    return [torch.zeros_like(each) if each.grad is None else each.grad.clone() for each in model.parameters()]


@pytest.mark.parametrize("family", list(FAMILIES))
@settings(max_examples=8, deadline=None)
@given(drawn=families_of_rows(), temperature=st.sampled_from([1.0, 0.7]))
def test_shared_prompts_change_neither_logprobs_nor_gradients(
    family: str, drawn: tuple[list[torch.Tensor], list[torch.Tensor]], temperature: float
) -> None:
    rows, masks = drawn
    model = MODELS[family]
    expected = torch.cat(
        [
            torch.cat([found * _last(mask, len(row))[1:], found.new_zeros(1)])
            for row, mask, found in zip(rows, masks, unshared(model, rows, temperature), strict=True)
        ]
    )
    weights = torch.linspace(-1, 1, len(expected))
    wanted = gradients(model, (expected * weights).sum())
    got = shared(model, rows, masks, temperature)
    torch.testing.assert_close(got, expected, atol=2e-5, rtol=1e-4)
    for one, other in zip(gradients(model, (got * weights).sum()), wanted, strict=True):
        torch.testing.assert_close(one, other, atol=2e-4, rtol=1e-3)


def _last(mask: torch.Tensor, length: int) -> torch.Tensor:
    return torch.cat([torch.zeros(length - len(mask), dtype=torch.int64), mask])


@given(families_of_rows())
def test_the_packed_sequence_holds_every_row_and_each_beginning_once(
    drawn: tuple[list[torch.Tensor], list[torch.Tensor]],
) -> None:
    rows, _ = drawn
    layout = pack(rows)
    assert [part.begin for part in layout.segments] == [0, *(part.end for part in layout.segments[:-1])]
    assert layout.segments[-1].end == layout.tokens <= sum(map(len, rows))
    ids = layout.input_ids(rows)
    for row, where in zip(rows, layout.where, strict=True):
        assert ids[where].equal(row)
        for part in layout.segments:
            inside = int(((where >= part.begin) & (where < part.end)).sum())
            assert inside in {0, part.end - part.begin}


def test_a_group_s_prompt_is_packed_once() -> None:
    system, question = torch.arange(40), torch.arange(20)
    rows = [torch.cat([system, question + group, torch.tensor([row] * 30)]) for group in (0, 20) for row in range(4)]
    assert pack(rows).tokens == 40 + 2 * 20 + 8 * 30
    assert pack(rows, share=False).tokens == 8 * 90


def test_a_micro_batch_counts_what_is_computed() -> None:
    prompt = torch.arange(40)
    rows = [torch.cat([prompt, torch.tensor([50 + row] * 10)]) for row in range(6)]
    assert micro_batches(rows, 100) == [[0, 1, 2, 3, 4, 5]]
    assert micro_batches(rows, 60) == [[0, 1], [2, 3], [4, 5]]
    assert micro_batches(rows, 100, share=False) == [[0, 1], [2, 3], [4, 5]]
    assert micro_batches(rows, 1) == [[0], [1], [2], [3], [4], [5]]


def test_a_prefix_that_saves_little_is_computed_for_each_row() -> None:
    """Sharing costs attention and a merge for every token below it."""
    prompt, rest = torch.arange(1000), torch.arange(20)
    tails = [torch.full((2000,), 5000 + row) for row in range(4)]
    # the first two rows share 20 tokens more, above 4,000
    rows = [torch.cat([prompt, rest, tail]) if row < 2 else torch.cat([prompt, tail]) for row, tail in enumerate(tails)]
    layout = pack(rows)
    assert layout.tokens == packed_tokens(rows) == 1000 + 2 * 20 + 4 * 2000
    assert [segment.end - segment.begin for segment in layout.segments] == [1000, 2020, 2020, 2000, 2000]
    short = [row[:1100] for row in rows]
    assert packed_tokens(short) == 1000 + 20 + 2 * 80 + 2 * 100
    assert micro_batches(rows, 9039) == [[0, 1, 2], [3]]
    assert micro_batches(rows, 9040) == [[0, 1, 2, 3]]


def test_a_rank_with_fewer_micro_batches_splits_its_own() -> None:
    assert split_into([[3, 1, 2], [0]], 2) == [[3, 1, 2], [0]]
    assert split_into([[3, 1, 2], [0]], 4) == [[3], [1], [2], [0]]


@pytest.mark.parametrize("block", [700, 3000, 100_000])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 0.02)])
def test_logprobs_of_slices_are_those_of_whole_logits(
    dtype: torch.dtype, tolerance: float, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slices of three positions, blocks of two, of ten, and of all; some positions have no token, some have several."""
    monkeypatch.setitem(memory_estimate.BLOCK_LOGITS, "cpu", block)
    monkeypatch.setitem(memory_estimate.SLICE_LOGITS, "cpu", 1000)
    torch.manual_seed(1)
    hidden, weight = (torch.randn(40, 16) * 2).to(dtype), torch.randn(300, 16).to(dtype)
    rows, labels = torch.randint(40, (100,)).sort().values, torch.randint(300, (100,))
    exact = [tensor.double().requires_grad_() for tensor in (hidden, weight)]
    scores = exact[0] @ exact[1].t() / 0.7
    expected = scores.log_softmax(1)[rows, labels]
    rounded = [tensor.clone().requires_grad_() for tensor in (hidden, weight)]
    computed = token_logprobs(rounded[0], rounded[1], rows, labels, 0.7, with_entropy=True)
    torch.testing.assert_close(computed.logprobs.double(), expected, atol=20 * tolerance, rtol=tolerance)
    probabilities = scores.detach().softmax(1)
    torch.testing.assert_close(
        computed.entropies.double(), -(probabilities * probabilities.log()).sum(1), atol=10 * tolerance, rtol=tolerance
    )
    assert not computed.entropies.requires_grad
    weights = torch.randn(100)
    (expected * weights).sum().backward()
    (computed.logprobs * weights).sum().backward()
    for one, other in zip(rounded, exact, strict=True):
        assert one.grad is not None
        assert other.grad is not None
        assert (one.grad.double() - other.grad).norm() <= tolerance * other.grad.norm()


@pytest.mark.parametrize("trained", [0, 1])
def test_no_tensor_of_all_logits_is_made(trained: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest tensor of forward and backward has a block's logits, or the shape of an input."""
    monkeypatch.setitem(memory_estimate.BLOCK_LOGITS, "cpu", 2_000)
    sizes: list[int] = []

    class Sizes(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            outputs = func(*args, **(kwargs or {}))
            sizes.extend(each.numel() for each in tree_leaves(outputs) if isinstance(each, torch.Tensor))
            return outputs

    hidden, weight = torch.randn(64, 4, requires_grad=True), torch.randn(500, 4, requires_grad=bool(trained))
    rows, labels = torch.arange(64), torch.randint(500, (64,))
    with Sizes():  # type: ignore[no-untyped-call]
        token_logprobs(hidden, weight, rows, labels, with_entropy=True).logprobs.sum().backward()
    assert max(sizes) == 2_000


def test_the_kernel_refuses_what_it_cannot_do() -> None:
    query = torch.zeros(1, 1, 2, 8)
    with pytest.raises(ValueError, match="Linear: spanloop_tree needs attention_plan and no mask"):
        tree_attention(torch.nn.Linear(1, 1), query, query, query, None)
