"""Exact continuation of conversations: vocabulary, alignment of token ids, and the conversations that are kept."""
