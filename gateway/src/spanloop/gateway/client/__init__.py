"""HTTP/1.1 to engines: framing, connections, client, JSON."""
