"""The Ray cluster of a job: its connection, the nodes that it reserves, their watch, and its TransferQueue."""
