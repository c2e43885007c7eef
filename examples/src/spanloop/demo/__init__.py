"""``spanloop demo``: the whole loop on this machine."""
