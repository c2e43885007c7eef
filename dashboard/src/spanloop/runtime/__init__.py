"""The processes of one spanloop: which services exist, how they start, restart and stop, and their health."""
