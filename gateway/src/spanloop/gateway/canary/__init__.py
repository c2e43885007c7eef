"""The canary: a candidate that answers a share of the sessions or copies of calls."""
