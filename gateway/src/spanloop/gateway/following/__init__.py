"""Several gateways serve the same versions: all but one follow that one, where deployments are made."""
