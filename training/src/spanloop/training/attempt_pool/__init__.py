"""Attempts of one run, made by several runners on any host.

``pooled_run`` is the process of ``spanloop run --pool``: it offers attempts in the control database (``offers``) and
collects their ends. ``worker`` is the process that leases and makes them (``leased_attempts``), for the runner that
started it (``worker_process``).
"""
