"""What a form sends: fields by name, as a browser without scripts sends them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl

from fastapi import Request

from deadletter.errors import UsageError

_FIELDS: Final = 3_000
_NUMBER_CHARS: Final = 16


@dataclass(frozen=True, slots=True)
class Form:
    """`fields`: in their order; a name may be there several times."""

    fields: tuple[tuple[str, str], ...]

    def text(self, name: str, most: int = 1_000) -> str:
        """Empty where it is not there. UsageError: too long."""
        said = next((value for one, value in self.fields if one == name), "")
        if len(said) > most:
            raise UsageError(f"{name}: expected at most {most:,} characters, got {len(said):,}")
        return said.replace("\r\n", "\n")

    def texts(self, name: str) -> list[str]:
        return [value for one, value in self.fields if one == name]

    def numbers(self, name: str) -> list[int]:
        """UsageError: one of them is none."""
        return [whole_number(name, value) for value in self.texts(name)]


def whole_number(name: str, said: str) -> int:
    if not said.isascii() or not said.isdigit() or len(said) > _NUMBER_CHARS:
        raise UsageError(f"{name}: expected a number, got {said[:50]!r}")
    return int(said)


async def form_of(request: Request) -> Form:
    """UsageError: more fields than a form of ours has."""
    try:
        said = parse_qsl((await request.body()).decode(), keep_blank_values=True, max_num_fields=_FIELDS)
    except ValueError as error:
        raise UsageError("expected a form of this page, got something else") from error
    return Form(tuple(said))
