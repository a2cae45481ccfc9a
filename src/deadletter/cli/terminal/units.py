"""Counts as people like to read them."""

from __future__ import annotations


def count(number: int, noun: str = "letter") -> str:
    """`1 letter`, `20,000 letters`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
