"""A consumer's queues while it runs: one consumer per queue, its workers, and the ways out of a handler."""
