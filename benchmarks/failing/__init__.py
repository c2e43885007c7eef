"""Failures in four languages, written by someone who had not read the rules that are to name their owners."""
