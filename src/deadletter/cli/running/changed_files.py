"""Which Python files changed, for a developer's reload: by looking, twice a second."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_SKIPPED: Final = frozenset({"__pycache__", "node_modules", "site-packages", "venv"})


class ChangedFiles:
    """The .py files below a directory, but for hidden and installed ones."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._known = self._look()

    def since_last(self) -> list[Path]:
        """Those that are new, gone or others than at the last look."""
        now = self._look()
        changed = {path for path in now.keys() | self._known.keys() if now.get(path) != self._known.get(path)}
        self._known = now
        return sorted(changed)

    def _look(self) -> dict[Path, tuple[int, int]]:
        found: dict[Path, tuple[int, int]] = {}
        for place, folders, files in os.walk(self._directory):
            folders[:] = [one for one in folders if not one.startswith(".") and one not in _SKIPPED]
            for name in files:
                if name.endswith(".py"):
                    path = Path(place, name)
                    try:
                        told = path.stat()
                    except OSError:  # gone between the two looks
                        continue
                    found[path] = (told.st_mtime_ns, told.st_size)
        return found
