"""The settings of a command that takes letters: frozen values, and who said each.

Apart from the rest, whose policies, guards and desk take longer to load than such a command to work.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from deadletter.amqp.address import Address
from deadletter.core.letter.names import PARKED

if TYPE_CHECKING:
    from deadletter.config.settings import Watch
    from deadletter.core.deciding.deaths import CountBy

Kind = Literal["option", "environment", "file", "default"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Who said it: `--url`, `DLQ_URL`, `deadletter.toml:3`, or nobody."""

    kind: Kind
    where: str

    def __str__(self) -> str:
        return self.where


DEFAULT: Final = Source(kind="default", where="default")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """`url` and `api` hold passwords: `addresses` and `name` are what may be shown."""

    addresses: tuple[Address, ...]
    api: str = field(repr=False)
    name: str

    @property
    def vhost(self) -> str:
        return self.addresses[0].vhost


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """None: nobody said where; `dlq serve` then has a file of its own. `off`: no store is wanted at all."""

    url: str | None = field(repr=False)
    off: bool = False

    def in_force(self, environ: Mapping[str, str], home: Path) -> str | None:
        """The URL of the store that was named; else of a file of our own; None when there shall be none."""
        from deadletter.store.store_address import default_url

        return None if self.off else self.url or default_url(environ, home)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSettings:
    """Defaults of `dlq check`."""

    dlq: str | None
    target: str | None
    max_retries: int
    count_by: CountBy
    target_type: str
    create: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredQueues:
    """The queues of this vhost whose letters come into the store where `dlq serve` runs, as `[desk]` says."""

    names: frozenset[str] = frozenset({PARKED})
    ingest: bool = True
    asked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSettings:
    """What such a command needs to know."""

    broker: BrokerSettings
    store: StoreSettings
    check: CheckSettings | None
    """None: nobody said anything of it."""
    stored: StoredQueues = StoredQueues()
    watches: tuple[Watch, ...] = ()
