"""`dlq demo`: everything at once on a private broker, to look at."""
