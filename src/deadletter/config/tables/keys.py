"""Every key of the file, found in the model: for the environment's names, for unknown keys, for the docs."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from functools import cache
from typing import Any, Final, NamedTuple, get_args, get_origin

from pydantic.fields import FieldInfo

from deadletter.config.plain import OWN_NAMES
from deadletter.config.tables.base import Table
from deadletter.config.tables.file import File

_PREFIX: Final = "DLQ_"
_FIRST: Final = ("name", "match")
KINDS: Final = ("fixed", "linear", "exponential")


class ConfigKey(NamedTuple):
    """A key that holds a value: `policies.match.queue`. In a list of tables it has no variable."""

    path: tuple[str, ...]
    field: FieldInfo
    in_list: bool

    @property
    def name(self) -> str:
        return ".".join(self.path)

    @property
    def variable(self) -> str | None:
        if self.in_list or not _plain(self.field.annotation):
            return None
        return OWN_NAMES.get(self.path) or _PREFIX + "_".join(self.path).upper()


class Below(NamedTuple):
    """What stands under a key: one table of one of these kinds, or a list of them; no table: a value."""

    tables: tuple[type[Table], ...]
    many: bool


def below(field: FieldInfo) -> Below:
    return _below(field.annotation)


def _below(annotation: Any) -> Below:
    if isinstance(annotation, type) and issubclass(annotation, Table):
        return Below((annotation,), many=False)
    found = [_below(argument) for argument in get_args(annotation) if argument is not Ellipsis]
    tables = tuple(dict.fromkeys(table for part in found for table in part.tables))
    many = bool(tables) and (get_origin(annotation) is list or any(part.many for part in found))
    return Below(tables, many)


def fields(tables: tuple[type[Table], ...]) -> dict[str, FieldInfo]:
    """The fields of these tables by the names a file uses."""
    found = {field.alias or name: field for table in tables for name, field in table.model_fields.items()}
    first = _FIRST if "match" in found else ("kind",)  # what a base class has would come before it
    return {name: found[name] for name in sorted(found, key=lambda name: name not in first)}


@cache
def keys() -> tuple[ConfigKey, ...]:
    """Every key, in the file's order, each once."""
    return tuple({key.path: key for key in _keys((File,), (), in_list=False)}.values())


def _keys(tables: tuple[type[Table], ...], path: tuple[str, ...], *, in_list: bool) -> Iterator[ConfigKey]:
    for name, field in fields(tables).items():
        inside = below(field)
        if inside.tables:
            yield from _keys(inside.tables, (*path, name), in_list=in_list or inside.many)
        else:
            yield ConfigKey((*path, name), field, in_list)


def _plain(annotation: Any) -> bool:
    """Whether a value of this type can be said in one line of text: no table of free names."""
    return get_origin(annotation) is not dict and all(_plain(part) for part in get_args(annotation))


@cache
def variables() -> dict[str, ConfigKey]:
    """The environment's names for the keys that have one."""
    return {variable: key for key in keys() if (variable := key.variable) is not None}


def types_in(annotation: Any) -> list[Any]:
    """The types somewhere in an annotation, and their validators."""
    inner = [kind for part in get_args(annotation) for kind in types_in(part)]
    return [get_origin(annotation) or annotation, *inner]


def nearest(name: str, known: list[str], *, cutoff: float = 0.6) -> str | None:
    """What was probably meant."""
    close = get_close_matches(name.lower(), [k.lower() for k in known], n=1, cutoff=cutoff)
    return next((k for k in known if k.lower() == close[0]), None) if close else None
