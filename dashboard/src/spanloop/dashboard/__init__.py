"""The Streamlit dashboard: it shows what the store holds and schedules jobs.

Invariant: pages read only by named queries and act only through ``spanloop.training``'s job API, registry and
deployment. What can be computed without Streamlit lives in ``spanloop.dashboard.view_models`` as pure functions.
"""
