"""`dlq serve`: a worker per vhost, a loop per queue, sweeps by the clock, guards, and what it tells."""
