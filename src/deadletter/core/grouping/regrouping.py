"""What becomes of groups when their letters were grouped anew: who takes whose place, and what people said.

Letters moved from group to group. Of a group that has none left, the one that got most of its letters is the
heir: notes and what is known of letters that are long forgotten go there. What a person said of it (resolved,
muted, asleep, of which category) goes to the group of which it brought the most letters, unless somebody has
said something of that one; where it had letters of several vhosts, to one such group in each of them.

What people decided holds: letters that they put together stay together, whatever their keys are now, and
letters that they took apart stay apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupNow:
    """A group after its letters were moved."""

    root: int
    """The group as which it is shown: another one where a person merged it."""
    letters: int
    """That are in it now."""
    said: bool = False
    """Whether a person has said something of it."""
    vhost: int | None = None
    """Of all its letters; None: of several, or nobody knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """What is to be done."""

    heirs: dict[int, int]
    """Of groups that have no letters left."""
    merged: dict[int, int | None]
    """Into which group each belongs; None: it is one of its own. Only those that people merged."""
    said: dict[int, int]
    """Groups that take over what was said of another."""
    apart: frozenset[tuple[int, int]]
    """Pairs that a person took apart, by the groups in which their letters are now."""


class GroupSettling:
    """`moved`: how many letters went from one group to another. `split`: pairs that a person took apart.
    `same`: pairs that are one group by their letters' keys, and so are to be shown as one."""

    def __init__(
        self,
        groups: Mapping[int, GroupNow],
        moved: Mapping[tuple[int, int], int],
        *,
        split: Iterable[tuple[int, int]] = (),
        same: Iterable[tuple[int, int]] = (),
    ) -> None:
        self._groups = groups
        self._moved = moved
        self._split = frozenset(split)
        self._same = tuple(same)
        self._ways: dict[int, list[int]] = {}
        for before, after in sorted(moved, key=lambda way: (-moved[way], way)):
            self._ways.setdefault(before, []).append(after)
        self._parents: dict[int, int] = {}

    def settled(self) -> Settled:
        gone = [group for group in self._ways if group in self._groups and not self._has_letters(group)]
        heirs = {group: heir for group in gone if (heir := self._heir(group, {group})) is not None}
        return Settled(
            heirs=heirs,
            merged=self._merged(heirs),
            said=self._said(heirs),
            apart=frozenset(
                (one, other)
                for group, from_ in self._split
                for one in self.living(group)
                for other in self.living(from_)
                if one != other
            ),
        )

    def living(self, group: int) -> frozenset[int]:
        """Where letters that were in this group are now."""
        found: set[int] = set()
        seen: set[int] = set()
        ahead = [group]
        while ahead:
            one = ahead.pop()
            if one not in seen:
                seen.add(one)
                ahead += self._ways.get(one, ())
                if self._has_letters(one):
                    found.add(one)
        return frozenset(found)

    def _has_letters(self, group: int) -> bool:
        return group in self._groups and self._groups[group].letters > 0

    def _heir(self, group: int, seen: set[int]) -> int | None:
        """The living group that got most of its letters; where that one is gone too, that one's heir."""
        for after in self._ways.get(group, ()):
            if after in seen:
                continue
            if self._has_letters(after):
                return after
            seen.add(after)
            if (heir := self._heir(after, seen)) is not None:
                return heir
        return None

    # -- together ----------------------------------------------------------------------------------------
    def _top(self, group: int) -> int:
        while (parent := self._parents.get(group, group)) != group:
            group = parent
        return group

    def _join(self, some: Iterable[int]) -> None:
        first, *others = sorted(some)
        for other in others:
            self._parents[self._top(other)] = self._top(first)

    def _merged(self, heirs: Mapping[int, int]) -> dict[int, int | None]:
        """All that have letters of groups that people merged are one; their first one leads, or its heir."""
        sets: dict[int, set[int]] = {}
        for number, group in self._groups.items():
            if group.root != number:
                sets.setdefault(group.root, {group.root}).add(number)
        about: set[int] = set()
        for members in sets.values():
            self._join(members)
            for member in members:
                self._join({member, *self.living(member)})
                about |= {member, *self.living(member)}
        for pair in self._same:
            self._join(pair)
            about |= set(pair)
        components: dict[int, set[int]] = {}
        for number in about:
            components.setdefault(self._top(number), set()).add(number)
        merged: dict[int, int | None] = {}
        for component in components.values():
            lead = self._lead(component, sets, heirs)
            merged |= {group: None if group == lead else lead for group in component}
        return merged

    def _lead(self, component: set[int], sets: Mapping[int, set[int]], heirs: Mapping[int, int]) -> int:
        roots = sorted(component & sets.keys())
        leads = [root if self._has_letters(root) else heirs.get(root) for root in roots]
        living = [one for one in leads if one is not None] or [
            one for one in component if self._has_letters(one)
        ]
        return min(living or component, key=lambda one: (-self._letters(one), one))

    def _letters(self, group: int) -> int:
        return self._groups[group].letters if group in self._groups else 0

    def _vhost(self, group: int) -> int | None:
        return self._groups[group].vhost if group in self._groups else None

    # -- what was said -----------------------------------------------------------------------------------
    def _said(self, heirs: Mapping[int, int]) -> dict[int, int]:
        brought: dict[int, dict[int, int]] = {}
        for (before, after), letters in self._moved.items():
            if before not in self._groups or self._most_went(before, self._vhost(after)) != after:
                continue
            if self._has_letters(before) and self._letters(before) >= letters:
                continue  # it has kept the most
            to = after if self._has_letters(after) else heirs.get(before)
            if to is not None and self._vhost(to) == self._vhost(after):
                source = self._groups[before].root
                of = brought.setdefault(to, {})
                of[source] = of.get(source, 0) + letters
        told: dict[int, int] = {}
        for to, sources in brought.items():
            came = sum(letters for (_, after), letters in self._moved.items() if after == to)
            most = min(sources, key=lambda source: (-sources[source], source))
            own = self._letters(to) - came
            known = self._groups.get(most)
            if known is not None and known.said and not self._groups[to].said and sources[most] >= own:
                told[to] = most
        return told

    def _most_went(self, before: int, vhost: int | None) -> int:
        """To which group of this vhost most letters of one went; some did."""
        return next(after for after in self._ways[before] if self._vhost(after) == vhost)
