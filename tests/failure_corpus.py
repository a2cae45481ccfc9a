"""The corpus of failures: dead letters as real frameworks left them on a real broker, each with its group.

`tests/corpus/failures/<framework>.jsonl` has one letter a line, made by `tests/corpus/make/run`. Two letters
belong together (`expect`) when one change would cure both and they come from the same queue; that was said of
each before any program grouped them. A letter is kept as bytes: properties and body, compressed.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tests.paths import ROOT

from deadletter.core.letter.envelope import ExchangeKey
from deadletter.core.letter.letter import Letter
from deadletter.core.letter.message import RawMessage

FAILURES: Final = ROOT / "tests" / "corpus" / "failures"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedFailure:
    """One dead letter, and the group to which it belongs."""

    expect: str
    """`<framework>/<origin queue>/<cause>`: the same for all letters of one group, and for no other."""
    why: str
    arguable: str
    """What somebody else might say of this label with some right; empty where it is plain."""
    framework: str
    version: str
    release: int
    """Of the application: the second has the same code on other lines."""
    rabbitmq: str
    letter: Letter

    @property
    def origin(self) -> str:
        """The queue whose consumer failed."""
        return self.expect.split("/")[1]


def frameworks() -> list[str]:
    """Those that have letters here."""
    return sorted(path.stem for path in FAILURES.glob("*.jsonl"))


def recorded_failures(*wanted: str) -> Iterator[RecordedFailure]:
    """All letters of these frameworks, or of all, in the order in which they died."""
    for framework in wanted or frameworks():
        for line in (FAILURES / f"{framework}.jsonl").read_text().splitlines():
            entry = json.loads(line)
            yield RecordedFailure(
                expect=entry["expect"],
                why=entry["why"],
                arguable=entry["arguable"],
                framework=entry["framework"],
                version=entry["version"],
                release=entry["release"],
                rabbitmq=entry["rabbitmq"],
                letter=Letter(
                    source=entry["queue"],
                    message=RawMessage(_unpacked(entry["properties"]), _unpacked(entry["body"])),
                    came_by=ExchangeKey(entry["exchange"].encode(), entry["routing_key"].encode()),
                    redelivered=entry["redelivered"],
                ),
            )


def _unpacked(text: str) -> bytes:
    return zlib.decompress(base64.b64decode(text))
