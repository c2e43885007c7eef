"""A model server that plays a script over the APIs of seven providers."""
