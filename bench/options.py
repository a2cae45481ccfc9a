"""What is given on a command line."""

from __future__ import annotations

import argparse

from bench.agreement import LEAST_ROUNDS, MOST_ROUNDS


def positive(text: str) -> int:
    """A whole number above zero; underscores may group its digits."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a positive whole number, got {text!r}")
    return number


def add_rounds(parser: argparse.ArgumentParser) -> None:
    """How many rounds; see `agreement.most_rounds`."""
    parser.add_argument("--rounds", type=positive, default=LEAST_ROUNDS, help="at least (%(default)s)")
    parser.add_argument(
        "--most-rounds",
        type=positive,
        help=f"at most, where they do not agree ({MOST_ROUNDS}; as many as --rounds where those are fewer "
        f"than {LEAST_ROUNDS})",
    )
