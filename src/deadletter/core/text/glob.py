"""Patterns in which one sign stands for any run, matched without ever going back further than to the last
one.

The usual translation into a regular expression takes exponential time on `*a*a*a*a*b`; this takes at most
pattern times text, because a later wildcard makes every earlier one's choice irrelevant. Topic patterns
(`core.topology.routing_keys`) are the same problem with words for characters, so both use `match_runs`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence


def match_runs(
    pattern: Sequence[str], items: Sequence[str], run: str, same: Callable[[str, str], bool]
) -> bool:
    """Whether the pattern covers all items; `run` stands for zero or more, `same` compares one to one."""
    at = item = 0
    last_run, resume = -1, 0
    while item < len(items):
        if at < len(pattern) and pattern[at] == run:
            last_run, resume = at, item
            at += 1
        elif at < len(pattern) and same(pattern[at], items[item]):
            at += 1
            item += 1
        elif last_run >= 0:
            resume += 1
            at, item = last_run + 1, resume
        else:
            return False
    return all(rest == run for rest in pattern[at:])


def glob(pattern: str, text: str) -> bool:
    """`*` stands for any run of characters, also none; everything else stands for itself."""
    if "*" not in pattern:
        return pattern == text
    return match_runs(pattern, text, "*", str.__eq__)
