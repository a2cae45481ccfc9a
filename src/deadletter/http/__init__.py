"""Short questions over HTTP: to RabbitMQ's management API, to a service of ours. It knows HTTP, not letters.

Why not httpx alone: it takes longer to load than a command takes to its first letter. It is still there for
whatever is more than a plain question to a plain server: TLS, proxies.
"""
