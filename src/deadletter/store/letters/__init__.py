"""The letters of the store: how they come in, what is kept of them, thrown away and forgotten."""
