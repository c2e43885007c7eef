"""Rows of text for SFT and DPO: dialog files, and messages rendered by a chat template."""
