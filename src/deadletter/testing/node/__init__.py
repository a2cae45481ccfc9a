"""A private RabbitMQ node: found or fetched, started, and gone without a trace afterwards."""
