"""Edits of stored letters: tried out, kept as drafts and recipes, checked by schemas."""
