"""Settings that need no tables: a broker, a store, the defaults of a check, each said plainly or not at all.

So it is for most who move letters by hand: two URLs from the environment, or a short file. The tables and
pydantic would take longer to load than the command to work. Here only what is certainly right is taken;
whatever else was said, and everything that is wrong, is left to those who judge everything and say it well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from deadletter.config import urls
from deadletter.config.command_settings import BrokerSettings, CheckSettings, CommandSettings, StoreSettings

if TYPE_CHECKING:
    from deadletter.config.files import Trail
    from deadletter.errors import Problem

CONFIG_VARIABLE: Final = "DLQ_CONFIG"
SECRETS: Final = ("DLQ_API_TOKEN", "DLQ_OIDC_SECRET", "DLQ_SESSION_KEY")
"""Read where they are needed, and kept out of the tree, which can be printed."""
OWN_NAMES: Final[Mapping[tuple[str, ...], str]] = {
    ("broker", "url"): "DLQ_URL",
    ("broker", "api"): "DLQ_API",
    ("store", "url"): "DLQ_STORE",
}
"""Variables that are not called after their key."""
DEFAULT_URL: Final = "amqp://guest:guest@127.0.0.1:5672/"
MAX_RETRIES: Final = 2**31
_PREFIX: Final = "DLQ_"
_NAME_CHARS: Final = 255


@dataclass(slots=True, kw_only=True)
class Spoken:
    """What the variables say: values by their place in the tree, with the variable's name."""

    values: list[tuple[tuple[str, ...], object, str]] = field(default_factory=list)
    inner: dict[Trail, str] = field(default_factory=dict)
    """For single values of the watches, by which variable."""
    problems: list[Problem] = field(default_factory=list)


def plainly_spoken(environment: Mapping[str, str]) -> Spoken | None:
    """What the variables say, where they say no more than two addresses and a store; else None."""
    paths = {name: path for path, name in OWN_NAMES.items()}
    ours = sorted(name for name in environment if name.startswith(_PREFIX))
    if any(name not in paths and name != CONFIG_VARIABLE and name not in SECRETS for name in ours):
        return None
    said = [name for name in ours if name in paths and environment[name]]
    return Spoken(values=[(paths[name], environment[name], name) for name in said])


def plain_settings(tree: Mapping[str, object]) -> CommandSettings | None:
    """What comes of a gathered tree that is plain and right; else None."""
    tables = {name: _table(tree.get(name, {}), keys) for name, keys in _TABLES.items()}
    if not tree.keys() <= _TABLES.keys() or any(table is None for table in tables.values()):
        return None
    try:
        return CommandSettings(
            broker=_broker(tables["broker"] or {}),
            store=_store(tables["store"] or {}),
            check=_check(tables["check"]) if tables["check"] else None,
        )
    except ValueError:
        return None


def _broker(said: Mapping[str, Any]) -> BrokerSettings:
    given = said.get("url", DEFAULT_URL)
    addresses = urls.addresses([given] if isinstance(given, str) else given)
    return BrokerSettings(
        addresses=addresses,
        api=urls.management_api(said.get("api"), addresses[0]),
        name=said.get("name") or addresses[0].host,
    )


def _store(said: Mapping[str, Any]) -> StoreSettings:
    url: str | None = said.get("url")
    if url is not None:
        urls.check_store(url)
    off = url == urls.NO_STORE
    return StoreSettings(url=None if off else url, off=off)


def _check(said: Mapping[str, Any]) -> CheckSettings:
    from deadletter.config.tables.counting import count_by

    dlq, target = said.get("dlq"), said.get("target")
    if dlq is not None and target is not None and (dlq == target or target.count("*") > dlq.count("*")):
        raise ValueError("another queue")
    return CheckSettings(
        dlq=dlq,
        target=target,
        max_retries=said.get("max_retries", 3),
        count_by=count_by(said.get("count_by", "first")),
        target_type=said.get("target_type", "quorum"),
        create=said.get("create", True),
    )


def _text(value: object) -> bool:
    return isinstance(value, str)


def _name(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _NAME_CHARS


def _texts(value: object) -> bool:
    return _text(value) or (isinstance(value, list) and bool(value) and all(map(_text, value)))


def _number(value: object) -> bool:
    return type(value) is int and 0 <= value <= MAX_RETRIES  # a bool is no number here


def _queue_type(value: object) -> bool:
    return value in ("quorum", "classic")


def _flag(value: object) -> bool:
    return isinstance(value, bool)


_TABLES: Final[Mapping[str, Mapping[str, Callable[[object], bool]]]] = {
    "broker": {"url": _texts, "api": _text, "name": _name},
    "store": {"url": _text},
    "check": {
        "dlq": _name,
        "target": _name,
        "max_retries": _number,
        "count_by": _text,
        "target_type": _queue_type,
        "create": _flag,
    },
}
"""Their keys, and which values are right; a test compares with the tables of the file."""


def _table(said: object, keys: Mapping[str, Callable[[object], bool]]) -> Mapping[str, Any] | None:
    """The table, if nothing in it is unknown or wrong; else None."""
    if not isinstance(said, dict):
        return None
    right = all(key in keys and keys[key](value) for key, value in said.items())
    return said if right else None
