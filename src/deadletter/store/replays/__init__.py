"""Replays in the store: what was asked for, which letters, what became of each."""
