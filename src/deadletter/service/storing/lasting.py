"""Whether letters that nobody asked for come into the store: not into a file that is gone tomorrow.

In `deadletter.parked` a letter outlasts every restart. A store that nobody named may be a file in a container
that somebody starts without a volume, or in memory; there it would be lost with the container. So unless
`[desk] ingest = true` is said, letters stay in their queue then, and that is told at the start.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from deadletter.store.store_address import SqliteAddress, parse

if TYPE_CHECKING:
    from deadletter.config.command_settings import StoredQueues
    from deadletter.config.settings import DeskSettings

FLEETING: Final = frozenset({"aufs", "fuse-overlayfs", "overlay", "ramfs", "rootfs", "tmpfs"})
"""What a container's own files are on, and what is in memory only."""
_MOUNTS: Final = Path("/proc/self/mountinfo")
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")


def why_not_stored(desk: DeskSettings | StoredQueues, url: str, *, mounts: Path = _MOUNTS) -> str | None:
    """Why letters do not come into this store; None: they do."""
    if not desk.ingest:
        return "[desk] ingest is false"
    address = parse(url)
    if desk.asked or not isinstance(address, SqliteAddress):
        return None
    kind = _file_system(address.path, mounts)
    if kind not in FLEETING:
        return None
    return f"{address} would not outlast this container or machine: it is on {kind}"


def _file_system(path: Path, mounts: Path) -> str:
    """The kind of file system it is on; empty where nobody tells."""
    place = path.absolute()
    try:
        place = place.resolve()
        lines = mounts.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    found: tuple[int, str] = (0, "")
    for line in lines:  # a later mount on the same place hides an earlier one
        before, _, behind = line.partition(" - ")
        fields, told = before.split(" "), behind.split(" ")
        if len(fields) < 5 or len(told) < 1:
            continue
        point = Path(_ESCAPED.sub(lambda code: chr(int(code[1], 8)), fields[4]))
        if place.is_relative_to(point) and len(point.parts) >= found[0]:
            found = (len(point.parts), told[0])
    return found[1]
