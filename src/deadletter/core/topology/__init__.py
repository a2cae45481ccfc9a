"""A vhost as a value: what holds in it, where messages go, and what differs from a plan."""
