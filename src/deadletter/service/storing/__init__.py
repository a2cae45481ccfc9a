"""Parked letters into the store: lines that take them, batches, the store's outages, retention."""
