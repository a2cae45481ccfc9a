"""The tables of `deadletter.toml`: every key, its type, its default and what it is for."""
