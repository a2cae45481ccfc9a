"""`dlq policy list | explain | set | remove`."""
