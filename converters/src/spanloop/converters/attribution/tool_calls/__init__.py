"""Rules about tool calls."""
