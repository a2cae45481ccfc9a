"""What one command does with a broker, once: look, check, examine, apply a plan, migrate a queue."""
