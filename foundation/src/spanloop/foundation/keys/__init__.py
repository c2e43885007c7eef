"""API keys with scopes, users with roles, limits, TLS files and the audit log, for every service with a port."""
