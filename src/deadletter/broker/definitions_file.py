"""An exported definitions file, from the disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from deadletter.core.topology import definitions
from deadletter.core.topology.vhost import Topology
from deadletter.errors import UsageError

MAX_BYTES: Final = 512 * 1024 * 1024


def read_definitions(path: Path, *, version: str | None = None) -> dict[str, Topology]:
    """Every vhost in the file. `version` is the broker's, if it is not to be taken from the file."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise UsageError(f"{path}: expected at most {MAX_BYTES // 2**20} MiB of definitions, got more")
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path}: expected a definitions file, got {error.strerror or error}") from error
    except ValueError as error:
        raise UsageError(
            f"{path}: expected JSON as rabbitmqctl export_definitions writes it: {error}"
        ) from error
    return definitions.read_definitions(document, str(path), version=version)
