"""Work on one letter that takes long where the letter is large: then it is done beside the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from deadletter.core.letter.letter import Letter

LARGE_BYTES: Final = 256 * 1024
"""To take a body of this size apart is a matter of some hundredths of a second."""
_T = TypeVar("_T")


async def aside(letter: Letter, made: Callable[[], _T]) -> _T:
    """What is made of this letter: in a thread of its own where it is large."""
    return made() if len(letter.body) <= LARGE_BYTES else await asyncio.to_thread(made)
