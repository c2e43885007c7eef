"""The Streamlit dashboard: it shows what the store holds and schedules jobs.

Invariant: pages read through named queries and act only through ``spanloop.training``'s job API, registry and
deployment. ``pages`` are composed of ``components``; ``queries`` read; ``view_models`` are pure functions.
"""
