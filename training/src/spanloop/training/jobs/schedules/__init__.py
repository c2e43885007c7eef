"""Schedules: when each of them ticks, and what a tick does."""
