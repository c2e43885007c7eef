"""Export of spans: where to, by which transport, until the process ends."""
