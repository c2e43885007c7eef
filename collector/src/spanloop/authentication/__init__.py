"""API keys with scopes, shared by collector, gateway and dashboard."""
