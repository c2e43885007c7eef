"""Strategies that choose, among the rows that a job could train on, those that it trains on, and their order."""
