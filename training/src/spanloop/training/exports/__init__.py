"""Stored episodes as training files for other programs."""
