"""The collector's HTTP and gRPC endpoints."""
