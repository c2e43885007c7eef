"""Token ids and log-probabilities of each response, collected and recorded."""
