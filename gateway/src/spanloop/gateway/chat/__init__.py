"""Chat completions: request, sessions, answers, server-sent events."""
