"""Groups for eyes that may not see all of a letter: a title is made of what an error says, and that may quote
what is masked.

A title is of one letter, and stays when that letter is gone. So a letter is looked for that would have the
same title: what its masked fields hold is hidden in it, and their words as well, as numbers in a title are
masked in another way. It is looked for among those that whoever asks may see. Where there is no such letter,
the title is the type of the error and where it was raised; nor does another letter say it where nobody knows
what the first one has in its masked fields.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from deadletter.core.access.field_masks import MASKED, FieldMasks
from deadletter.core.access.scope import Scope
from deadletter.core.grouping.fingerprint import Kind
from deadletter.core.grouping.grouping_rules import Grouping
from deadletter.core.grouping.letter_query import LetterOrder, LetterQuery
from deadletter.core.grouping.stored_letter import read_inside, stored_letter
from deadletter.core.letter.archive_format import StoreKeys
from deadletter.core.letter.letter import Letter
from deadletter.core.replaying.masked_letter import MOST_SECRETS, hidden, masked
from deadletter.operations.records.exact_letters import PORTION_BYTES
from deadletter.operations.records.masked_rows import LOOKED_INTO_BYTES
from deadletter.store.letters.large_letters import aside
from deadletter.store.letters.letter_store import LetterStore
from deadletter.store.letters.letter_views import Facets, GroupDetail, GroupView

_KNOWN: Final = 20_000
_WORDS: Final = re.compile(r"[^\W\d_]{4,}")
_ORDERS: Final = (LetterOrder.OLDEST, LetterOrder.NEWEST)
_OF_CODE: Final = frozenset(set(Kind) - {Kind.REASON, Kind.CAUSE, Kind.BODY, Kind.MESSAGE})
"""Parts of a fingerprint that a program wrote before it saw a letter."""


GroupingSource: TypeAlias = Callable[[], Grouping]
"""The rules in force: a service may have read its file again."""


class _Titled(NamedTuple):
    """A group and its title."""

    group: int
    title: str


class MaskedGroups:
    """What is to be hidden in the titles of groups, found out once for each."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[_Titled, Scope], tuple[str, ...] | None] = OrderedDict()

    async def views(
        self,
        store: LetterStore,
        some: Sequence[GroupView],
        scope: Scope,
        grouping: GroupingSource,
    ) -> tuple[GroupView, ...]:
        if not scope.masks:
            return tuple(some)
        found = await self._secrets(store, [_Titled(one.id, one.title) for one in some], scope, grouping)
        return tuple(_view(one, found[_Titled(one.id, one.title)]) for one in some)

    async def detail(
        self, store: LetterStore, told: GroupDetail, scope: Scope, grouping: GroupingSource
    ) -> GroupDetail:
        if not scope.masks:
            return told
        titled = _Titled(told.group.id, told.group.title)
        secrets = (await self._secrets(store, [titled], scope, grouping))[titled]
        parts = tuple(
            (kind, _text(text, secrets, unless=kind in _OF_CODE), counts) for kind, text, counts in told.parts
        )
        return replace(told, group=_view(told.group, secrets), parts=parts)

    async def facets(
        self, store: LetterStore, told: Facets, scope: Scope, grouping: GroupingSource
    ) -> Facets:
        """Groups are told by their titles there."""
        some = [one for one in told.by.get("group", ()) if one.label]
        if not scope.masks or not some:
            return told
        titled = {one.value: _Titled(int(one.value), one.label) for one in some}
        found = await self._secrets(store, list(titled.values()), scope, grouping)
        shown = tuple(
            replace(one, label=_text(one.label, found[titled[one.value]])) if one.label else one
            for one in told.by["group"]
        )
        return replace(told, by={**told.by, "group": shown})

    async def titles(
        self,
        store: LetterStore,
        some: Sequence[tuple[int, str]],
        scope: Scope,
        grouping: GroupingSource,
    ) -> tuple[str, ...]:
        """Of groups, by number and title."""
        wanted = [_Titled(*one) for one in some]
        if not scope.masks:
            return tuple(one.title for one in wanted)
        found = await self._secrets(store, wanted, scope, grouping)
        return tuple(_text(one.title, found[one]) for one in wanted)

    async def _secrets(
        self, store: LetterStore, some: Sequence[_Titled], scope: Scope, grouping: GroupingSource
    ) -> dict[_Titled, tuple[str, ...] | None]:
        """None: nobody knows."""
        left = [one for one in some if (one, scope) not in self._known]
        found: dict[_Titled, tuple[str, ...] | None] = dict.fromkeys(left)
        done: set[_Titled] = set()
        for order in _ORDERS:
            looked = await _looked_at(store, left, order, scope)
            for one, number in looked.items():
                whole = await store.whole([number], most_bytes=PORTION_BYTES)
                if number not in whole:
                    continue
                letter, keys = whole[number]
                title, words = await aside(letter, partial(_titled, letter, keys, scope.masks, grouping()))
                if title == one.title:
                    found[one] = words
                    done.add(one)
            left = [one for one in left if one not in done]
        for one, secrets in found.items():
            self._known[one, scope] = secrets
        told = {one: self._known[one, scope] for one in some}
        while len(self._known) > _KNOWN:
            self._known.popitem(last=False)
        return told


async def _looked_at(
    store: LetterStore, some: Sequence[_Titled], order: LetterOrder, scope: Scope
) -> dict[_Titled, int]:
    """The first letter of each group in this order that may be seen, where it is not too large."""
    found: dict[_Titled, int] = {}
    for one in some:
        asked = LetterQuery(group=one.group, state=None, order=order, limit=1, scope=scope)
        rows = (await store.find(asked)).letters
        if rows and rows[0].bytes <= LOOKED_INTO_BYTES:
            found[one] = rows[0].id
    return found


def _titled(
    letter: Letter, keys: StoreKeys, masks: FieldMasks, grouping: Grouping
) -> tuple[str, tuple[str, ...] | None]:
    """The title that this letter would give its group, and what is hidden in it; None: nobody knows."""
    made = stored_letter(letter, now_ms=keys.died_ms, vhost=keys.vhost, grouping=grouping)
    seen = masked(read_inside(letter), masks)
    return made.fingerprint.title, None if seen.unknown else _words(seen.secrets)


def _words(secrets: Sequence[str]) -> tuple[str, ...] | None:
    """These, and each word in them: the longest first. None: they are too many."""
    words = {*secrets, *(word for one in secrets for word in _WORDS.findall(one))}
    if len(words) > MOST_SECRETS:
        return None
    return tuple(sorted(words, key=lambda one: (-len(one), one)))


def _view(group: GroupView, secrets: Sequence[str] | None) -> GroupView:
    if secrets is not None:
        return replace(group, title=hidden(group.title, secrets), culprit=hidden(group.culprit, secrets))
    where = f" in {group.culprit}" if group.culprit else ""
    return replace(group, title=f"{group.error_type}{where}" if group.error_type else MASKED)


def _text(text: str, secrets: Sequence[str] | None, *, unless: bool = False) -> str:
    if secrets is not None:
        return hidden(text, secrets)
    return text if unless else MASKED
