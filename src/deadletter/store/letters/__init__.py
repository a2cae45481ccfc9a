"""The letters of the store: how they come in, how they are grouped, found, thrown away and forgotten."""
