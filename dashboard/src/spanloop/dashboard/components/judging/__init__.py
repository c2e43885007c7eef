"""Judge by hand: the panel of an episode, the queue of a filter, and how people and rules compare."""
