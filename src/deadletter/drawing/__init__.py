"""A topology as a picture (`svg`), as a diagram in text (`mermaid`), and as a file RabbitMQ imports."""
