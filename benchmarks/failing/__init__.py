"""A blind set of failures in several languages: its author had not read the attribution rules. Not scored yet."""
