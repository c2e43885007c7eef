"""The files of a model's folder: weights, adapters, tokenizer and chat template."""
