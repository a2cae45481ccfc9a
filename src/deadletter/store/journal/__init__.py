"""What the desk keeps beside letters: audit, samples of queues, answers given; and that something changed."""
