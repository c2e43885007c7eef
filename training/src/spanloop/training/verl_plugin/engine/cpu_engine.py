# pyright: basic
"""verl's FSDP2 engine on a CPU: computes each shared prefix once, and logits only for the loss.

The recipes name this module as the model's ``external_lib``, so verl loads it in the process that trains. Loading
registers the engine for device ``cpu`` and the loss of :mod:`.policy_loss`. Stock verl on CUDA does not load it.

verl's interface is unchanged: rows in, one number for each token out, zero for tokens outside the loss mask.
Micro-batches are divided by the number of computed tokens.

Each data-parallel rank has a part of the batch. Loss and metrics are those of the whole batch: tokens and rows are
counted over all ranks, and metrics are computed on the gathered rows.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from verl.utils import tensordict_utils as tu
from verl.workers.engine import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead
from verl.workers.engine.utils import postprocess_batch_func, prepare_micro_batches

from ..policy_loss import sampler_gap
from ..sample_records import RECORDS
from .batch_metrics import ENTROPY, nested_entropy
from .lora_dropout import build_lora_module
from .packed_batch import micro_batches, pack_batch, split_into
from .token_logprobs import entropies, token_logprobs
from .tree_attention import ATTENTION, tree_attention

ALL_ATTENTION_FUNCTIONS.register(ATTENTION, tree_attention)

_FAMILIES = frozenset({"llama", "qwen2", "qwen3"})
"""Model types with plain causal attention, which :mod:`.tree_attention` computes."""


def unshared_reason(config: Any) -> str:
    """Return why a model's rows cannot share prefixes; empty when they can."""
    if config.model_type not in _FAMILIES:
        return f"models of type {config.model_type!r} are not known to work with it"
    if any(layer != "full_attention" for layer in getattr(config, "layer_types", None) or ()):
        return "some of its layers do not attend to the whole past"
    if getattr(config, "attention_dropout", 0.0):
        return "it has attention dropout"
    return ""


_STOCK: Any = FSDPEngineWithLMHead
"""verl's decorator loses the class's type."""


@EngineRegistry.register(model_type="language_model", backend=["fsdp", "fsdp2"], device="cpu")
class CpuEngine(_STOCK):  # type: ignore[misc]
    """A data-parallel rank on a CPU."""

    _build_lora_module = build_lora_module

    _shares = False

    def _build_module(self) -> Any:
        module = super()._build_module()
        reason = unshared_reason(module.config)
        self._shares = not reason
        if self._shares:
            module.set_attn_implementation(ATTENTION)
        else:
            print(f"spanloop: prompts are not shared between rows of this model: {reason}", flush=True)  # noqa: T201 - the job's log
        return module

    def forward_backward_batch(
        self,
        data: Any,
        loss_function: Callable[..., Any] | None,
        forward_only: bool = False,  # noqa: FBT001, FBT002 - verl's signature
    ) -> Any:
        """Run forward, and backward unless ``forward_only``, over ``data``; return verl's outputs and metrics."""
        self._count_over_ranks(data)
        parts, indices = self._micro_batches(data)
        outputs: list[dict[str, Any]] = []
        for number, part in enumerate(parts):
            is_last = number == len(parts) - 1
            with torch.no_grad() if forward_only else self._gradient_sync_context(is_last_micro_batch=is_last):
                loss, output = self.forward_step(part, loss_function=loss_function, forward_only=forward_only)
                if not forward_only:
                    loss.backward()
            outputs.append(output)
        result: Any = postprocess_batch_func(output_lst=outputs, indices=indices, data=data)
        if not forward_only:
            logprobs = result["model_output"].get("log_probs")
            if logprobs is not None and "rollout_log_probs" in data:
                sampled = {name: self._gathered(data[name]) for name in ("rollout_log_probs", "response_mask")}
                result["metrics"] |= sampler_gap(self._gathered(logprobs), sampled)
                records: Any = tu.get_non_tensor_data(data=data, key=RECORDS, default=None)
                if records is not None:
                    records.write_update(data, logprobs)
            entropy = result["model_output"].get("entropy")
            if entropy is not None:
                mean = nested_entropy(self._gathered(entropy), self._gathered(data["response_mask"]))
                result["metrics"][ENTROPY.removeprefix("actor/")] = [mean]
            result["model_output"] = {}
        return result

    @contextmanager
    def disable_adapter(self) -> Generator[None]:
        """Compute with the base alone, without LoRA's matrices."""
        trained = [parameter for parameter in self.module.parameters() if parameter.requires_grad]
        with super().disable_adapter():
            # PEFT also freezes them meanwhile. FSDP2 takes the precision of gradients from what trains in the first
            # pass, which is the base's where each batch has one pass.
            for parameter in trained:
                parameter.requires_grad_(True)
            yield

    def _count_over_ranks(self, data: Any) -> None:
        """Set the sizes that losses divide by; verl's padding rows have no token in the mask and count as no row."""
        counts = torch.tensor(
            [data["loss_mask"].sum().item(), sum(bool(mask.any()) for mask in _rows(data["loss_mask"]))]
        )
        dist.all_reduce(counts, group=self.get_data_parallel_group())
        tokens, rows = (int(count) for count in counts)
        tu.assign_non_tensor(data, sp_size=1, dp_size=self.get_data_parallel_size(), batch_num_tokens=tokens)
        if self.get_data_parallel_size() > 1 and "advantages" in data:
            tu.assign_non_tensor(data, global_batch_size=rows)

    def _gathered(self, nested: Any) -> Any:
        """Return the rows of all ranks, in the order of the ranks."""
        size = self.get_data_parallel_size()
        if size == 1:
            return nested
        parts: list[list[torch.Tensor]] = [[]] * size
        dist.all_gather_object(parts, [row.detach() for row in _rows(nested)], group=self.get_data_parallel_group())
        return torch.nested.as_nested_tensor([row for part in parts for row in part], layout=torch.jagged)

    def _micro_batches(self, data: Any) -> Any:
        if not self._shares:
            return prepare_micro_batches(data=data, dp_group=self.get_data_parallel_group())
        indices = micro_batches(_rows(data["input_ids"]), data["max_token_len_per_gpu"])
        # every rank runs as many passes as the one with the most: each pass may exchange weights
        count = torch.tensor(len(indices))
        dist.all_reduce(count, op=dist.ReduceOp.MAX, group=self.get_data_parallel_group())
        indices = split_into(indices, int(count))
        return [tu.index_select_tensor_dict(data, part) for part in indices], indices

    def prepare_model_inputs(self, micro_batch: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the model's inputs, and the arguments of :meth:`prepare_model_outputs`."""
        if not self._shares:
            stock: tuple[dict[str, Any], dict[str, Any]] = super().prepare_model_inputs(micro_batch)
            return stock
        batch = pack_batch(_rows(micro_batch["input_ids"]), _rows(micro_batch["loss_mask"]))
        inputs = {
            "input_ids": batch.input_ids,
            "position_ids": batch.position_ids,
            "attention_mask": None,
            "logits_to_keep": batch.logits_at,
            "packed_rows": batch.layout,
        }
        return inputs, {"batch": batch}

    def prepare_model_outputs(
        self, output: Any, output_args: dict[str, Any], micro_batch: Any, logits_processor_func: Any
    ) -> dict[str, torch.Tensor]:
        """Return log-probabilities, and entropies on request, as verl's nested tensors."""
        if not self._shares:
            stock: dict[str, torch.Tensor] = super().prepare_model_outputs(
                output, output_args, micro_batch, logits_processor_func
            )
            return stock
        batch = output_args["batch"]
        logits = output.logits.squeeze(0)
        temperature = _one_temperature(micro_batch["temperature"])
        logprobs = token_logprobs(logits, batch.rows, batch.labels, temperature)
        model_output = {"log_probs": logprobs}
        if tu.get_non_tensor_data(data=micro_batch, key="calculate_entropy", default=False):
            model_output["entropy"] = entropies(logits, temperature)[batch.rows]
        return {
            name: torch.nested.nested_tensor_from_jagged(batch.scatter(values), batch.offsets)
            for name, values in model_output.items()
        }


def _rows(nested: Any) -> list[torch.Tensor]:
    return list(nested.unbind())


def _one_temperature(temperature: Any) -> float:
    values = torch.as_tensor(temperature, dtype=torch.float64).unique()
    if len(values) != 1:
        raise ValueError(f"a micro-batch of rows sampled at temperatures {values.tolist()}: expected one")
    return float(values)
