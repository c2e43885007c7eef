"""The canary of the running gateway: start it, look at its sessions, decide about it."""
