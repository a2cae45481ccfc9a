"""Letters by the hour, as a row of blocks: small enough for a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_BLOCKS: Final = "·▁▂▃▄▅▆▇█"
_ASCII: Final = ".:-=+*#%@"


def sparkline(counts: Sequence[int], *, width: int, blocks: bool = True) -> str:
    """`width` characters; the highest is the tallest, nothing is a dot, and one letter is never nothing."""
    marks = _BLOCKS if blocks else _ASCII
    per = -(-len(counts) // width)
    sums = [sum(counts[start : start + per]) for start in range(0, len(counts), per)]
    most = max(sums, default=0)
    return "".join(marks[-(-one * (len(marks) - 1) // most) if one > 0 else 0] for one in sums)
