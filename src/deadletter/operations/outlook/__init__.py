"""What is asked about the broker of a running service: what waits, queues, findings, topology."""
