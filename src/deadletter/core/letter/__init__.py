"""A letter as bytes: its message, what a move changes on it, and our names and headers on a broker."""
