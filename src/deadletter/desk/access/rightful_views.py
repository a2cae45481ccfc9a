"""Views that people saved, for whoever is at the desk.

An address has what somebody looked for: names of queues, words, values. So what others share is seen by who
sees everything.
"""

from __future__ import annotations

from deadletter.core.access.field_masks import FieldMasks
from deadletter.core.access.rights import Action
from deadletter.core.text.safe_text import is_plain
from deadletter.desk.access.present import person
from deadletter.desk.answers.desk_route import JournalSource
from deadletter.errors import UsageError
from deadletter.store.journal.view_table import ADDRESS_CHARS, NAME_CHARS, SavedView


async def views_seen(journal: JournalSource | None, masks: FieldMasks | None) -> tuple[SavedView, ...]:
    """Their own, and those of others that they may see. None of them without a store."""
    if journal is None:
        return ()
    who = person()
    return await (await journal()).views(who.called(), others=who.scope.whole and not masks)


async def save_view(journal: JournalSource, name: str, address: str, *, shared: bool) -> SavedView:
    """UsageError: no name, or an address that is none of ours. NotAllowed: only who may note shares."""
    who = person()
    if shared:
        who.must(Action.NOTE)
    name = name.strip()
    if not name or len(name) > NAME_CHARS or not is_plain(name):
        raise UsageError(f"name: expected 1 to {NAME_CHARS} characters in one line, got {name[:50]!r}")
    if not is_address(address):
        raise UsageError(f"address: expected a path of this page such as /letters?q=…, got {address[:50]!r}")
    view = SavedView(name=name, address=address, owner=who.called(), shared=shared)
    return await (await journal()).save_view(view)


async def remove_view(journal: JournalSource, name: str) -> SavedView:
    return await (await journal()).remove_view(person().called(), name)


def is_address(said: str) -> bool:
    """A path of ours, whatever a browser makes of it."""
    inside = said.startswith("/") and not said.startswith(("//", "/api/", "/sign-"))
    return inside and len(said) <= ADDRESS_CHARS and said.isprintable() and "\\" not in said
