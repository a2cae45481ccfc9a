"""What can go wrong with a measurement, as opposed to what it measures."""

from __future__ import annotations


class BenchError(Exception):
    """A measurement that could not be taken. Not a slow one: that is a figure."""
