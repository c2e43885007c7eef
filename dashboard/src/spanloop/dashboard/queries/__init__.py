"""Reads of the store, the registry and the jobs, as frozen values and frames. These modules draw nothing."""
