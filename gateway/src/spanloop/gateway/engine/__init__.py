"""The engine behind the gateway: its process, weights, adapters and admission."""
