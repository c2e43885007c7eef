"""Spans of model calls that no instrumentor records."""
