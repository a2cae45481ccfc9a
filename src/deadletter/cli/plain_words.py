"""Commands as they are mostly typed: names and options, each once and right. Read without typer.

typer, and pydantic which comes with it, take longer to load than a move to its first letter. Here only what
is plain is taken; for everything else (help, a mistake, an option twice, a value that begins with a dash) it
is asked as ever. A test reads the same words both ways.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from deadletter.cli.terminal.output import Exit

PlainCall = Callable[[], "Exit"]
_Reader = Callable[[str], object]
_MAX_DIGITS: Final = 9
WINDOW: Final = 2000
"""How many letters `move` and `check` have under way. A classic queue of 3.10 writes to disk in bursts, and
two of them stand still in turn unless there is enough between them: 1,000 gives nine tenths of the pace."""


def number(least: int, most: int = 10**_MAX_DIGITS) -> _Reader:
    def read(text: str) -> int:
        if not (text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS):
            raise ValueError(text)
        if not least <= int(text) <= most:
            raise ValueError(text)
        return int(text)

    return read


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainWords:
    """What may be typed behind a command: by which name, and as what the command gets it."""

    run: Callable[..., Exit]
    arguments: tuple[str, ...] = ()
    many: str | None = None
    """Any number of arguments instead."""
    texts: Mapping[str, str] = field(default_factory=dict)
    read: Mapping[str, tuple[str, _Reader]] = field(default_factory=dict)
    """Options whose text is not taken as it is."""
    lists: Mapping[str, str] = field(default_factory=dict)
    """Options that may be repeated."""
    flags: Mapping[str, tuple[str, bool]] = field(default_factory=dict)
    defaults: Mapping[str, object] = field(default_factory=dict)
    """Where nothing was typed; None where it is not named here."""

    def names(self) -> frozenset[str]:
        """What the command gets."""
        many = () if self.many is None else (self.many,)
        read = (name for name, _ in self.read.values())
        flags = (name for name, _ in self.flags.values())
        return frozenset((*self.arguments, *many, *self.texts.values(), *read, *self.lists.values(), *flags))


def read(words: Sequence[str], environ: Mapping[str, str]) -> PlainCall | None:
    """The call that was typed; None where it was not typed plainly."""
    command = COMMANDS.get(words[0]) if words else None
    if command is None or any(name.startswith("_DLQ_") for name in environ):  # a shell that completes
        return None
    said = values(command, words[1:])
    return None if said is None else partial(command.run, **said)


def values(command: PlainWords, words: Sequence[str]) -> dict[str, Any] | None:
    """What the command gets of these words; None where they are not plain."""
    said: dict[str, Any] = {}
    named: list[str] = []
    rest = iter(words)
    for word in rest:
        if not word.startswith("-"):
            named.append(word)
            continue
        option, given, value = word.partition("=")
        if option in command.flags:
            name, told = command.flags[option]
            if given or name in said:
                return None
            said[name] = told
            continue
        if not given:
            value = next(rest, "")
        if not value or value.startswith("-") or not _take(command, option, value, said):
            return None
    if not all(named) or (command.many is None and len(named) != len(command.arguments)):
        return None
    said |= (
        dict(zip(command.arguments, named, strict=True)) if command.many is None else {command.many: named}
    )
    return {name: command.defaults.get(name) for name in command.names()} | said


def _take(command: PlainWords, option: str, value: str, said: dict[str, Any]) -> bool:
    """Whether it was an option, not typed before, with a value that is right."""
    if option in command.lists:
        said.setdefault(command.lists[option], []).append(value)
        return True
    name, reader = command.read.get(option) or (command.texts.get(option), str)
    if name is None or name in said:
        return False
    try:
        said[name] = reader(value)
    except ValueError:
        return False
    return True


def _move(**said: Any) -> Exit:
    from deadletter.cli import move_command as command

    return command.run(command.MoveWish(**said))


def _check(**said: Any) -> Exit:
    from deadletter.cli import check_command as command

    return command.run(**said)


def _peek(**said: Any) -> Exit:
    from deadletter.cli import peek_command as command

    return command.run(**said)


def _doctor(**said: Any) -> Exit:
    from deadletter.cli import doctor_command as command

    return command.run(command.DoctorWish(**said))


def _sweep(**said: Any) -> Exit:
    from deadletter.cli import sweep_command as command

    return command.run(token=os.environ.get("DLQ_API_TOKEN"), **said)


_BROKER: Final = {"--url": "url", "--api": "api"}
_FILE: Final[Mapping[str, tuple[str, _Reader]]] = {"--config": ("file", Path)}
_PREFETCH: Final[Mapping[str, tuple[str, _Reader]]] = {"--prefetch": ("prefetch", number(1, 65535))}
_JSON: Final = {"--json": ("as_json", True)}
_LIFT: Final = {"--lift-limit": ("lift_limit", True)}
_DRY: Final = {"--dry-run": ("dry_run", True)}
_OFF: Final = {"as_json": False, "lift_limit": False, "dry_run": False}

COMMANDS: Final[Mapping[str, PlainWords]] = {
    "move": PlainWords(
        run=_move,
        arguments=("source", "target"),
        texts={**_BROKER, "--rate": "rate", "--for": "for_"},
        read={**_FILE, **_PREFETCH, "--limit": ("limit", number(1))},
        flags={**_LIFT, **_DRY, **_JSON, "--keep-deaths": ("keep_deaths", True)},
        defaults={**_OFF, "keep_deaths": False, "prefetch": WINDOW},
    ),
    "check": PlainWords(
        run=_check,
        texts={
            **_BROKER,
            "--dlq": "dlq",
            "--target": "target",
            "--count-by": "count_by",
            "--target-type": "target_type",
        },
        read={**_FILE, **_PREFETCH, "--max-retries": ("max_retries", number(0))},
        flags={**_LIFT, **_DRY, **_JSON, "--create": ("create", True), "--no-create": ("create", False)},
        defaults={**_OFF, "prefetch": WINDOW},
    ),
    "peek": PlainWords(
        run=_peek,
        arguments=("queue",),
        texts=_BROKER,
        read={
            **_FILE,
            "--limit": ("limit", number(1, 1000)),
            "--body-bytes": ("body_bytes", number(0, 16_000_000)),
        },
        flags={**_LIFT, **_JSON},
        defaults={"as_json": False, "lift_limit": False, "limit": 5, "body_bytes": 2000},
    ),
    "doctor": PlainWords(
        run=_doctor,
        texts={
            **_BROKER,
            "--vhost": "vhost",
            "--broker-version": "broker_version",
            "--at-least": "at_least",
            "--format": "format",
        },
        read={**_FILE, "--definitions": ("definitions", Path)},
        lists={"--ignore": "ignore"},
        flags={**_JSON, "--rules": ("rules", True)},
        defaults={"as_json": False, "rules": False, "at_least": "note", "format": "text", "ignore": ()},
    ),
    "sweep": PlainWords(
        run=_sweep,
        many="dlqs",
        texts={"--at": "at"},
        flags=_JSON,
        defaults={"as_json": False, "at": "http://127.0.0.1:8025"},
    ),
}
