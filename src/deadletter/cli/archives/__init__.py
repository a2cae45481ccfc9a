"""`dlq export` and `dlq import`: letters into a file, and out of it again."""
