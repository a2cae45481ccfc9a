"""Policies: which are in force, what they would do to a stored letter, rows of the store's table."""
