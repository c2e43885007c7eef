"""The live framework matrix: frameworks' apps against a scripted model; see ``make test-frameworks``."""
