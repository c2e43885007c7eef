"""Results of tool calls: the span and the answer that belong to each call, and whether it failed."""
