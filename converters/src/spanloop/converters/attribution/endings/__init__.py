"""Rules about an episode's end, and about episodes as a whole."""
