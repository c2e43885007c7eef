"""The policy endpoint: OpenAI-compatible, in front of vLLM, and the place where exact tokens are captured.

Invariant: an answer's last part leaves only after its token ids, logprobs and weight version are on disk, and the
version written is the one whose weights sampled it. Run it with ``python -m spanloop.gateway``; other parts talk to
it over HTTP only. Nothing is imported here, because the guard of the engine's process starts from this package too.
"""
