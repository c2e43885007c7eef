"""Models: the registry of their versions, their files, and where they come from."""
