"""Promote a model version by evidence: sequential test, rule, decisions, rollback, prune."""
