"""What the desk keeps beside letters: who did what, how queues were, which answers were given."""
