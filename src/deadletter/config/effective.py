"""Every value in force, as it was written, with who wrote it: what `dlq config show` prints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from deadletter.config.files import Trail
from deadletter.config.secrets import clean
from deadletter.config.settings import DEFAULT, BrokerSettings, Effective
from deadletter.config.tables.base import Table
from deadletter.config.tables.file import File
from deadletter.config.tables.keys import KINDS, below, fields
from deadletter.config.validate import Validator


def effective(judge: Validator, broker: BrokerSettings) -> tuple[Effective, ...]:
    """In the file's order; what follows from something else, as the API's address does, as it follows."""
    worked_out = {"broker.api": clean(broker.api), "broker.name": broker.name}
    return tuple(
        Effective(key=e.key, value=worked_out[e.key], source=e.source)
        if e.value is None and e.key in worked_out
        else e
        for e in _table(judge, judge.gathered.tree, (File,), (), written=True)
    )


def _table(
    judge: Validator, raw: dict[str, Any], models: tuple[type[Table], ...], trail: Trail, *, written: bool
) -> Iterator[Effective]:
    kind = raw.get("kind")
    own = tuple(m for m in models if len(models) == 1 or KINDS[models.index(m)] == kind)
    for name, field in fields(own).items():
        here = (*trail, name)
        said = written and name in raw
        value = raw[name] if name in raw else field.get_default()
        inside = below(field)
        if inside.tables and inside.many and value:
            for place, item in enumerate(value):
                yield from _table(judge, item, inside.tables, (*here, place), written=said)
        elif inside.tables and not inside.many and value is not None:
            yield from _table(judge, value, inside.tables, here, written=said)
        elif value is not None or not any(isinstance(part, int) for part in here):
            source = judge.gathered.source(here) if said else DEFAULT
            yield Effective(key=judge.key(here), value=clean(value, here), source=source)
