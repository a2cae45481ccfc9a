"""Letters from watched dead-letter queues: read, decided about, and sent on their way."""
