"""Token ids and log-probabilities: from captures and spans to token rows."""
