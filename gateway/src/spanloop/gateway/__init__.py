"""OpenAI-compatible endpoint in front of vLLM that captures the token ids and log-probabilities of each response.

Invariant: the last part of a response leaves only after its token ids, logprobs and weight version are on disk, and
that version names the weights that sampled it. Start it with ``python -m spanloop.gateway``; other parts use HTTP only.
This module imports nothing, because the process reaper of the engine starts from this package too.
"""
