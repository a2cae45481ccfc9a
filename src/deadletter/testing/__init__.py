"""RabbitMQ for tests and demos: one in memory, a private node, and a line that can be cut."""
