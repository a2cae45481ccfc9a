"""Which queues a pattern names, and what the target of each is called.

`dlq.*` names `dlq.orders` and `dlq.users`; with the target `dead.*` their letters go to `dead.orders` and
`dead.users`: what a star stands for in the pattern, it stands for in the target, in order. A star is one
character or more. A target without a star is one queue for all; a backslash makes a star an ordinary one.

Whatever leaves a doubt is refused before anything moves: a target with another number of stars than the
pattern, a name the stars can be laid over in two ways, a target that the pattern names too (the next run
would move it on).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from deadletter.errors import UsageError

STARS_MAX: Final = 5
NAME_MAX_BYTES: Final = 255
_STAR: Final = re.compile(r"(?<!\\)\*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapping:
    """A pattern for sources and a pattern for their targets. Made with `mapping`."""

    source: str
    target: str

    @property
    def is_fixed(self) -> bool:
        """Whether the source is one queue, so that nobody has to be asked which queues there are."""
        return not _STAR.search(self.source)

    @property
    def name(self) -> str:
        """The one queue of a fixed source."""
        return _plain(self.source)

    def names(self, queue: str) -> bool:
        """Whether the pattern names this queue."""
        return _from_left(_literals(self.source), queue) is not None

    def target_of(self, queue: str) -> str | None:
        """The queue the letters of `queue` go to; None when the pattern does not name it.

        Raises UsageError when there is more than one answer, or when the answer cannot be a target.
        """
        literals = _literals(self.source)
        first, last = _from_left(literals, queue), _from_right(literals, queue)
        if first is None or last is None:
            return None
        # The one takes each literal as early as it can, the other as late: if they agree there is one way.
        if _STAR.search(self.target) and first != last:
            one, other = _shown(first), _shown(last)
            raise UsageError(
                f"the pattern {self.source!r} fits {queue!r} in more than one way ({one} or {other}); "
                "name it in a pattern of its own"
            )
        captured = iter(first)
        target = _plain(_STAR.sub(lambda _star: next(captured).replace("*", r"\*"), self.target))
        if target == queue:
            raise UsageError(f"the target of {queue!r} is {queue!r} itself; nothing would move")
        if len(target.encode()) > NAME_MAX_BYTES:
            raise UsageError(
                f"the target of {queue!r} has more than {NAME_MAX_BYTES} bytes: {target[:60]!r}…"
            )
        if not self.is_fixed and self.names(target):
            raise UsageError(
                f"the pattern {self.source!r} names {target!r}, the target of {queue!r}, as well: the next "
                "run would move letters on from there; choose a target the pattern does not name"
            )
        return target


def mapping(source: str, target: str) -> Mapping:
    """Check both patterns; raises UsageError that says what is wrong."""
    for what, text in (("pattern", source), ("target", target)):
        if not text:
            raise UsageError(f"expected a {what} such as 'dlq.*', got nothing")
    stars, wanted = len(_STAR.findall(source)), len(_STAR.findall(target))
    if stars > STARS_MAX:
        raise UsageError(f"expected at most {STARS_MAX} stars in a pattern, got {stars} in {source!r}")
    if re.search(r"(?<!\\)\*\*", source):
        raise UsageError(f"two stars beside each other in {source!r} can be read in many ways; one is enough")
    if wanted > stars:
        raise UsageError(
            f"the target {target!r} has {wanted} stars and the pattern {source!r} only {stars}: "
            "there is nothing to put in their place"
        )
    if wanted and wanted != stars:
        raise UsageError(
            f"the target {target!r} has {wanted} of the {stars} stars of the pattern {source!r}: it is not "
            "clear which; use all of them, or none"
        )
    return Mapping(source=source, target=target)


def _literals(pattern: str) -> list[str]:
    """What stands before, between and after the stars."""
    return [_plain(part) for part in _STAR.split(pattern)]


def _from_left(literals: list[str], name: str) -> tuple[str, ...] | None:
    """What each star stands for when every literal is found as early as it can be; None: no match."""
    start, *between = literals
    if not between:
        return () if name == start else None
    if not name.startswith(start):
        return None
    position, captured = len(start), []
    for literal in between[:-1]:
        found = name.find(literal, position + 1)
        if found < 0:
            return None
        captured.append(name[position:found])
        position = found + len(literal)
    end = len(name) - len(between[-1])
    if end <= position or not name.endswith(between[-1]):
        return None
    return (*captured, name[position:end])


def _from_right(literals: list[str], name: str) -> tuple[str, ...] | None:
    """The same with every literal found as late as it can be."""
    found = _from_left([literal[::-1] for literal in reversed(literals)], name[::-1])
    return None if found is None else tuple(part[::-1] for part in reversed(found))


def _plain(text: str) -> str:
    return text.replace(r"\*", "*")


def _shown(groups: tuple[str, ...]) -> str:
    return " + ".join(map(repr, groups))
