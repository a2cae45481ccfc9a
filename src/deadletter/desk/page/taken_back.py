"""What somebody removed, as the audit has it: an undo believes the audit, not what a browser brings back."""

from __future__ import annotations

from typing import Final

from deadletter.desk.api.sources import MoreSources
from deadletter.errors import NotStored
from deadletter.store.journal.audit_list import AuditEntry, AuditQuery

_LOOKED_AT: Final = 50


async def removed_by(more: MoreSources, who: str, action: str, key: str, name: str) -> AuditEntry:
    """The last one of this `name`, which an entry has under this `key`. NotStored: they removed none."""
    if more.journal is not None:
        asked = AuditQuery(who=who, action=action, limit=_LOOKED_AT)
        for entry in (await (await more.journal()).audit(asked)).entries:
            if entry.detail.get(key) == name:
                return entry
    raise NotStored(f"{name}: {who} removed none of this name lately")
