"""The desk: what the service says and does over HTTP. Only `dlq serve` imports it: it is slow to load."""
