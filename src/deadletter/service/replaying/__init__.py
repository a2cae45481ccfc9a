"""Replays: stored letters sent again, at a pace, and what becomes of them."""
