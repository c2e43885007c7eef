"""Processes of this machine: identify them, find a group of them, end it, and run a command within limits.

Standard library only. Linux only: reads ``/proc``.
"""
