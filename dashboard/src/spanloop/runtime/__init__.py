"""Run the processes of a spanloop: which services exist, how they start, restart and stop, and their health."""
