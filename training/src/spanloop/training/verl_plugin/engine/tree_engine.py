# pyright: basic
"""verl's FSDP2 engine on a CPU and on CUDA: computes each shared prefix once, and logits only for the loss.

The recipes name this module as the model's ``external_lib``, so verl loads it in the process that trains. Loading
registers the engines for devices ``cpu`` and ``cuda``, where they precede verl's, and the loss of :mod:`.policy_loss`.

verl's interface is unchanged: rows in, one number for each token out, zero for tokens outside the loss mask.
Micro-batches are divided by the number of computed tokens. A model that cannot be computed so (:mod:`.engine_choice`)
has the forward pass of verl's stock engine; the job's log names the reason.

Each data-parallel rank has a part of the batch. Loss and metrics are those of the whole batch: tokens and rows are
counted over all ranks, and metrics are computed on the gathered rows.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from tensordict import NonTensorData
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from verl.utils import tensordict_utils as tu
from verl.utils.dataset.dataset_utils import DatasetPadMode
from verl.utils.device import get_device_id, get_device_name, set_expandable_segments
from verl.utils.torch_dtypes import PrecisionType
from verl.workers.engine import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngine, FSDPEngineWithLMHead, FSDPEngineWithValueHead
from verl.workers.engine.utils import postprocess_batch_func, prepare_micro_batches

from spanloop.foundation.trained_logprobs import PROBE_TEXT, PROBE_TOKENS, TrainedLogprobs

from ..policy_loss import sampler_gap
from ..sample_records import RECORDS
from .attention_kernels import kernel_for
from .attention_plan import plan_attention
from .background_checkpoint import BackgroundCheckpoints
from .batch_metrics import ENTROPY, nested_entropy
from .engine_choice import use_flash_attention, why_stock
from .fused_layers import fuse_layers
from .kept_activations import KeptActivations, free_bytes
from .lora_dropout import set_lora_dropout
from .memory_recovery import discard_pass, recovery_problem
from .output_head import OutputHead, SelectedTokens, head_problem
from .packed_batch import PackedBatch, micro_batches, pack_batch, split_into
from .prefix_tree import packed_tokens
from .tree_attention import ATTENTION, tree_attention

ALL_ATTENTION_FUNCTIONS.register(ATTENTION, tree_attention)

_STOCK: Any = FSDPEngine
"""verl's decorator loses the classes' types."""
_STOCK_POLICY: Any = FSDPEngineWithLMHead
_STOCK_VALUE: Any = FSDPEngineWithValueHead


class TreeEngine(_STOCK):  # type: ignore[misc]
    """A data-parallel rank; what policies and value models share."""

    _stock_reason = ""
    """Why the forward pass is that of verl's stock engine; empty when rows are packed as trees."""
    _needs_mask = False
    """Whether the stock engine's attention computes a mask over a whole pass."""
    _largest_pass = 0
    """Tokens of a pass after one ran out of memory; 0 while none did."""
    _running: Any = None
    """The micro-batch of the pass that runs."""
    _kept: KeptActivations
    """Of packed trees only."""

    def initialize(self) -> None:
        """Build model and optimiser, whose checkpoints are written beside the training."""
        if get_device_name() != "cpu":
            # passes differ in size; fixed segments would leave half of the memory in fragments
            set_expandable_segments(True)
        super().initialize()
        stock = self.checkpoint_manager
        self.checkpoint_manager: Any = BackgroundCheckpoints(
            model=stock.model,
            optimizer=stock.optimizer,
            lr_scheduler=stock.lr_scheduler,
            processing_class=stock.processing_class,
            checkpoint_config=stock.checkpoint_config,
            trust_remote_code=stock.trust_remote_code,
        )

    def _build_fsdp_module(self, module: Any) -> Any:
        base = module.get_base_model() if self._is_lora else module
        mixed = self.engine_config.mixed_precision or {}
        dtype, device = PrecisionType.to_dtype(mixed.get("param_dtype", "bf16")), self._device()
        self._stock_reason = why_stock(
            base.config, dtype, device, sequence_parallel=self.ulysses_sequence_parallel_size
        ) or self._prepare_head(base)
        if self._stock_reason:
            self._needs_mask = not use_flash_attention(base, device)
            self._log(f"rows are computed by verl's stock engine: {self._stock_reason}")
        else:
            base.set_attn_implementation(ATTENTION)
            self._kept = KeptActivations(base)
            unfused = fuse_layers(base, device)
            self._log(f"rows are computed by packed prefix trees{unfused and f', without fused layers: {unfused}'}")
        return super()._build_fsdp_module(module)

    def _log(self, text: str) -> None:
        if self.rank == 0:
            print(f"spanloop: {text}", flush=True)  # noqa: T201 - the job's log

    def _prepare_head(self, model: Any) -> str:
        """Prepare the model's head for packed rows; return why it cannot be, else an empty text."""
        del model
        return ""

    @staticmethod
    def _device() -> torch.device:
        return torch.device("cpu") if get_device_name() == "cpu" else torch.device(get_device_name(), get_device_id())

    def forward_backward_batch(
        self,
        data: Any,
        loss_function: Callable[..., Any] | None,
        forward_only: bool = False,  # noqa: FBT001, FBT002 - verl's signature
    ) -> Any:
        """Run forward, and backward unless ``forward_only``, over ``data``; return verl's outputs and metrics."""
        self._count_over_ranks(data)
        outputs, indices = self._in_passes(data, loss_function, forward_only=forward_only)
        result: Any = postprocess_batch_func(output_lst=outputs, indices=indices, data=data)
        if not forward_only:
            logprobs = result["model_output"].get("log_probs")
            if logprobs is not None and "rollout_log_probs" in data:
                sampled = {name: self._gathered(data[name]) for name in ("rollout_log_probs", "response_mask")}
                result["metrics"] |= sampler_gap(self._gathered(logprobs), sampled)
                if not self._stock_reason:
                    result["metrics"]["recomputed_layers"] = [self._kept.recomputed]
                records: Any = tu.get_non_tensor_data(data=data, key=RECORDS, default=None)
                if records is not None:
                    records.write_update(data, logprobs)
            entropy = result["model_output"].get("entropy")
            if entropy is not None:
                mean = nested_entropy(self._gathered(entropy), self._gathered(data["response_mask"]))
                result["metrics"][ENTROPY.removeprefix("actor/")] = [mean]
            result["model_output"] = {}
        return result

    def _in_passes(self, data: Any, loss_function: Any, *, forward_only: bool) -> tuple[list[dict[str, Any]], Any]:
        """Return the outputs of each micro-batch, and the micro-batches' rows.

        When the device runs out of memory, the batch starts again: first all activations are recomputed, then passes
        have half the size.
        """
        while True:
            parts, indices = self._micro_batches(data)
            try:
                return self._run_passes(parts, loss_function, forward_only=forward_only), indices
            except torch.OutOfMemoryError as error:
                keeps_some = not self._stock_reason and self._kept.keeps_some
                smaller = self._smaller_pass()
                problem = recovery_problem(dist.get_world_size())
                if problem or not (keeps_some or smaller):
                    longest = max(map(len, _rows(self._running["input_ids"])))
                    reason = problem or f"its longest row has {longest:,} tokens, and it cannot be smaller"
                    raise torch.OutOfMemoryError(
                        f"A pass does not fit and is not repeated: {reason}. {error}"
                    ) from error
            # here nothing refers to the failed pass any more
            if keeps_some:
                self._kept.recompute_all()
                self._log("out of memory; passes recompute all activations from now on")
            else:
                self._largest_pass = smaller
                self._log(f"out of memory; passes have at most {smaller:,} tokens from now on")
            discard_pass(self.module)

    def _run_passes(self, parts: list[Any], loss_function: Any, *, forward_only: bool) -> list[dict[str, Any]]:
        outputs: list[dict[str, Any]] = []
        for number, part in enumerate(parts):
            self._running = part
            is_last = number == len(parts) - 1
            with torch.no_grad() if forward_only else self._gradient_sync_context(is_last_micro_batch=is_last):
                loss, output = self.forward_step(part, loss_function=loss_function, forward_only=forward_only)
                if not forward_only:
                    loss.backward()
            # losses and records of the whole batch are computed beside its rows, on the CPU
            output["model_output"] = {name: values.cpu() for name, values in output["model_output"].items()}
            outputs.append(output)
        return outputs

    def _smaller_pass(self) -> int:
        """Return half the tokens of the pass that failed; 0 where it has one row, or the stock engine divides rows."""
        rows = _rows(self._running["input_ids"])
        return 0 if self._stock_reason or len(rows) == 1 else packed_tokens(rows) // 2

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
        masks = _rows(data["loss_mask"])
        counts = torch.tensor(
            [sum(int(mask.sum()) for mask in masks), sum(bool(mask.any()) for mask in masks)], device=self._device()
        )
        dist.all_reduce(counts, group=self.get_data_parallel_group())
        tokens, rows = (int(count) for count in counts)
        tu.assign_non_tensor(
            data,
            sp_size=self.ulysses_sequence_parallel_size,
            dp_size=self.get_data_parallel_size(),
            batch_num_tokens=tokens,
        )
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
        rows = _rows(data["input_ids"])
        if self._stock_reason:
            if self._needs_mask:
                # the mask is the square of the tokens of a pass
                tu.assign_non_tensor(data, max_token_len_per_gpu=max(map(len, rows)))
            return prepare_micro_batches(data=data, dp_group=self.get_data_parallel_group())
        limit = data["max_token_len_per_gpu"]
        indices = micro_batches(rows, min(limit, self._largest_pass or limit))
        # every rank runs as many passes as the one with the most: each pass may exchange weights
        count = torch.tensor(len(indices), device=self._device())
        dist.all_reduce(count, op=dist.ReduceOp.MAX, group=self.get_data_parallel_group())
        indices = split_into(indices, int(count))
        return [tu.index_select_tensor_dict(data, part) for part in indices], indices

    def _free_bytes(self) -> int:
        """Return the memory that a pass may use; 0 on a CPU, whose micro-batches have a fixed size."""
        return 0 if get_device_name() == "cpu" else free_bytes(self.module.parameters(), self.optimizer)

    def prepare_model_inputs(self, micro_batch: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the model's inputs, and the arguments of :meth:`prepare_model_outputs`."""
        if self._stock_reason:
            stock: tuple[dict[str, Any], dict[str, Any]] = super().prepare_model_inputs(micro_batch)
            return stock
        device = self._device()
        batch = pack_batch(_rows(micro_batch["input_ids"]), _rows(micro_batch["loss_mask"])).to(device)
        recomputed = self._kept.choose(batch.layout.tokens, self._free_bytes()) if torch.is_grad_enabled() else 0
        plan = plan_attention(
            batch.layout, device, longest_run=kernel_for(device).longest_run, recomputed_layers=recomputed
        )
        inputs = {
            "input_ids": batch.input_ids,
            "position_ids": batch.position_ids,
            "attention_mask": None,
            "attention_plan": plan,
        }
        return inputs | self._selected_inputs(batch, micro_batch), {"batch": batch}

    def prepare_model_outputs(
        self, output: Any, output_args: dict[str, Any], micro_batch: Any, logits_processor_func: Any
    ) -> dict[str, torch.Tensor]:
        """Return the outputs that the loss needs as verl's nested tensors."""
        if self._stock_reason:
            stock: dict[str, torch.Tensor] = super().prepare_model_outputs(
                output, output_args, micro_batch, logits_processor_func
            )
            return stock
        batch: PackedBatch = output_args["batch"]
        return {
            name: torch.nested.nested_tensor_from_jagged(values, batch.offsets)
            for name, values in self._token_outputs(output, batch, micro_batch).items()
        }

    def _selected_inputs(self, batch: PackedBatch, micro_batch: Any) -> dict[str, Any]:
        """Return further inputs of the model, which select the tokens that the loss needs."""
        raise NotImplementedError

    def _token_outputs(self, output: Any, batch: PackedBatch, micro_batch: Any) -> dict[str, torch.Tensor]:
        """Return verl's outputs, one number for each token of the concatenated rows."""
        raise NotImplementedError


@EngineRegistry.register(model_type="language_model", backend=["fsdp", "fsdp2"], device="cuda", vendor="nvidia")
@EngineRegistry.register(model_type="language_model", backend=["fsdp", "fsdp2"], device="cpu")
class PolicyTreeEngine(TreeEngine, _STOCK_POLICY):  # type: ignore[misc]
    """Computes log-probabilities, and entropies on request."""

    _head: OutputHead

    def save_checkpoint(self, local_path: str | None, *arguments: Any, **options: Any) -> None:
        """Save as verl's engine, and beside the weights the log-probabilities of a fixed text under them.

        Args:
            local_path: Folder of this checkpoint; None only waits for the last one.
            *arguments: Of verl's engine.
            **options: Of verl's engine.
        """
        super().save_checkpoint(local_path, *arguments, **options)
        tokenizer = self.model_config.tokenizer
        token_ids = tokenizer(PROBE_TEXT, add_special_tokens=False)["input_ids"][:PROBE_TOKENS] if tokenizer else []
        if local_path is None or len(token_ids) < 2:
            return
        with self.eval_mode():
            output = self.infer_batch(self._one_row(token_ids))
        if self.rank == 0:
            logprobs = output["model_output"]["log_probs"].unbind()[0].float().tolist()
            folder = Path(local_path) / "huggingface"
            folder.mkdir(exist_ok=True)
            TrainedLogprobs(tuple(token_ids), tuple(logprobs[: len(token_ids) - 1])).write(folder)

    def _one_row(self, token_ids: list[int]) -> Any:
        """Return a batch of one row, whose tokens after the first are trained."""
        length = len(token_ids)
        tensors: dict[str, Any] = {
            "input_ids": _nested_row(torch.tensor(token_ids)),
            "position_ids": _nested_row(torch.arange(length)),
            "loss_mask": _nested_row(torch.tensor([0] + [1] * (length - 1))),
        }
        settings = {
            "use_remove_padding": self.model_config.use_remove_padding,
            "use_dynamic_bsz": True,
            "max_token_len_per_gpu": length,
            "micro_batch_size_per_gpu": 1,
            "temperature": 1.0,
            "pad_mode": DatasetPadMode.NO_PADDING,
            "global_token_num": NonTensorData([length]),
        }
        return tu.get_tensordict(tensor_dict=tensors, non_tensor_dict=settings)

    def _build_lora_module(self, module: Any) -> Any:
        # on a CPU, so that the matrices are the same on each device
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.engine_config.seed)
            built = super()._build_lora_module(module)
        set_lora_dropout(built, self.model_config)
        return built

    def _prepare_head(self, model: Any) -> str:
        head = model.get_output_embeddings()
        problem = head_problem(head)
        if not problem:
            self._head = OutputHead(head)
        return problem

    def _selected_inputs(self, batch: PackedBatch, micro_batch: Any) -> dict[str, Any]:
        self._head.selected = SelectedTokens(
            batch.rows, batch.labels, _one_temperature(micro_batch["temperature"]), _calculates_entropy(micro_batch)
        )
        return {"logits_to_keep": batch.logits_at}

    def _token_outputs(self, output: Any, batch: PackedBatch, micro_batch: Any) -> dict[str, torch.Tensor]:
        tokens = OutputHead.unpacked(output)
        outputs = {"log_probs": batch.scatter(tokens.logprobs)}
        if _calculates_entropy(micro_batch):
            outputs["entropy"] = batch.scatter(tokens.entropies)
        return outputs


@EngineRegistry.register(model_type="value_model", backend=["fsdp", "fsdp2"], device="cuda", vendor="nvidia")
@EngineRegistry.register(model_type="value_model", backend=["fsdp", "fsdp2"], device="cpu")
class ValueTreeEngine(TreeEngine, _STOCK_VALUE):  # type: ignore[misc]
    """Computes values."""

    def _selected_inputs(self, batch: PackedBatch, micro_batch: Any) -> dict[str, Any]:
        del batch, micro_batch
        return {}

    def _token_outputs(self, output: Any, batch: PackedBatch, micro_batch: Any) -> dict[str, torch.Tensor]:
        del micro_batch
        return {"values": batch.spread(output.logits[0, :, 0])}


def _rows(nested: Any) -> list[torch.Tensor]:
    return list(nested.cpu().unbind())


def _nested_row(row: torch.Tensor) -> torch.Tensor:
    return torch.nested.as_nested_tensor([row], layout=torch.jagged)


def _calculates_entropy(micro_batch: Any) -> bool:
    return bool(tu.get_non_tensor_data(data=micro_batch, key="calculate_entropy", default=False))


def _one_temperature(temperature: Any) -> float:
    values = torch.as_tensor(temperature, dtype=torch.float64).unique()
    if len(values) != 1:
        raise ValueError(f"a micro-batch of rows sampled at temperatures {values.tolist()}: expected one")
    return float(values)
