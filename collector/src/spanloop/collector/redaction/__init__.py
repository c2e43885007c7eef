"""Redaction of content before it is stored."""
