"""Whether rounds agree: the median of their ratios, and why it is not quotable if it is not. Nothing measures
here.

A round counts when the machine was quiet in all of it. Where too few rounds were, all of them are taken, and
that is a doubt; so are too few rounds, and ratios that are far apart, whatever the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from bench.quiet import spread

LEAST_ROUNDS: Final = 5
MOST_ROUNDS: Final = 9
SPREAD_MOST: Final = 0.03
"""Between the quartiles of a ratio."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """To another of the same round, over the rounds."""

    median: float
    low: float
    high: float
    spread: float
    """Between the quartiles, as a share of the median."""

    def __str__(self) -> str:
        return f"{self.median:.2f} × ({self.low:.2f}–{self.high:.2f})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    ratio: Ratio
    doubts: tuple[str, ...]

    @property
    def quotable(self) -> bool:
        return not self.doubts


def agree(
    ratios: Mapping[int, float], noise: Mapping[int, Sequence[str]], *, to: str, busy: str = ""
) -> Agreement:
    """Of rounds by their numbers: their ratios, and what was not quiet in them. `to`: what it is a ratio
    to."""
    rounds, doubts = counted({number: noise.get(number, ()) for number in ratios})
    ratio = ratio_of([ratios[number] for number in sorted(rounds)])
    assert ratio is not None
    return Agreement(ratio=ratio, doubts=((busy,) if busy else ()) + doubts + apart(ratio, to))


def counted(noise: Mapping[int, Sequence[str]]) -> tuple[frozenset[int], tuple[str, ...]]:
    """The rounds that count, of these, and what is doubtful about all of them."""
    noisy = {number: words for number, words in noise.items() if words}
    quiet = frozenset(noise.keys() - noisy.keys())
    if len(quiet) >= LEAST_ROUNDS:
        return quiet, ()
    doubts: list[str] = []
    if len(noise) < LEAST_ROUNDS:
        doubts.append(f"rounds: {len(noise)}, needed {LEAST_ROUNDS}")
    if noisy:
        last = "; ".join(noisy[max(noisy)])
        doubts.append(f"the machine was not quiet in {len(noisy)} of {len(noise)} rounds (the last: {last})")
    return frozenset(noise), tuple(doubts)


def ratio_of(found: Sequence[float]) -> Ratio | None:
    """None of none."""
    if not found:
        return None
    return Ratio(median=median(found), low=min(found), high=max(found), spread=spread(found))


def apart(ratio: Ratio, to: str) -> tuple[str, ...]:
    """The doubt about ratios that are far apart; nothing where they are not."""
    if ratio.spread <= SPREAD_MOST:
        return ()
    said = f"its ratios to {to} are {ratio.spread:.1%} apart between the quartiles, allowed {SPREAD_MOST:.0%}"
    return (said,)


def most_rounds(least: int, asked: int | None) -> int:
    """So many rounds at most; who asks for few does not want many."""
    return max(least, asked or (MOST_ROUNDS if least >= LEAST_ROUNDS else least))
