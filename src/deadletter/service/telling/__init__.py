"""What the service tells: facts, logs, metrics, alerts, traces, and how it is."""
