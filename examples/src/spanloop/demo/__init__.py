"""``spanloop demo``: run the whole loop on this machine, as a learning demo or as a tiny one."""
