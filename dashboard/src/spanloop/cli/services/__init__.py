"""Commands that start, inspect and administer the services."""
