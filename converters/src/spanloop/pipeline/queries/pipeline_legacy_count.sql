-- Number of rows in legacy_transitions.
SELECT count() AS rows FROM legacy_transitions
