"""The shop: what the workers of every framework call."""
