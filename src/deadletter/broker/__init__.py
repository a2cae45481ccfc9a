"""One RabbitMQ: the supervised session, declaring, leases, return exchanges, what its management API says."""
