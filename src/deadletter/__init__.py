"""Deadletter makes failed RabbitMQ messages come back, without losing or multiplying one."""

__version__ = "0.1.0"

__all__ = ["__version__"]
