"""Which instrumentors trace the installed libraries."""
