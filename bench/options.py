"""What is given on a command line."""

from __future__ import annotations

import argparse


def positive(text: str) -> int:
    """A whole number above zero; underscores may group its digits."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a positive whole number, got {text!r}")
    return number
