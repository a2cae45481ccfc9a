"""`--where '<jq>'`: a jq program asked about stored letters, in the bounded process.

The program sees one object, `{"body": …, "headers": {…}, "properties": {…}}`: the body as JSON where it is
JSON, as a text where it is text, null where it is neither; headers and properties as `plain_values` tells
them. A letter is wanted when the program puts out anything but `false` and `null`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from deadletter.core.access.field_masks import NO_MASKS, FieldMasks
from deadletter.core.grouping.stored_letter import read_inside
from deadletter.core.letter.letter import Letter
from deadletter.core.letter.plain_values import plain_properties, plain_table
from deadletter.core.replaying.masked_letter import masked
from deadletter.errors import UsageError
from deadletter.jq.process import Asked, JqProcess, refusals
from deadletter.operations.records.records import PROGRAM_CHARS

_KNOWN: Final = 100


class Programs:
    """Programs that compile, and the process that runs them: started with the first question."""

    def __init__(self) -> None:
        self._jq = JqProcess()
        self._good: dict[str, None] = {}

    async def close(self) -> None:
        await self._jq.close()

    async def question(self, program: str, masks: FieldMasks = NO_MASKS) -> WhereProgram:
        """UsageError, in jq's words, where it does not compile. It sees nothing of what is masked."""
        if len(program) > PROGRAM_CHARS:
            raise UsageError(f"where: expected a jq program of at most {PROGRAM_CHARS} characters")
        if program not in self._good:
            (why,) = await asyncio.to_thread(refusals, [program])
            if why is not None:
                raise UsageError(
                    f"where: expected a jq program over {{body, headers, properties}}, got {why}"
                )
            if len(self._good) >= _KNOWN:
                self._good.clear()
            self._good[program] = None
        return WhereProgram(self._jq, program, masks)


@dataclass(slots=True)
class WhereProgram:
    """One program asked about letters; counts those of which it could say nothing."""

    jq: JqProcess
    program: str
    masks: FieldMasks = NO_MASKS
    unanswered: int = 0

    async def __call__(self, letters: Sequence[Letter]) -> list[bool]:
        documents = await asyncio.to_thread(lambda: [document(letter, self.masks) for letter in letters])
        said = await self.jq.ask([Asked(one, (self.program,)) for one in documents])
        answers = [one[self.program] for one in said]
        self.unanswered += answers.count(None)
        return [answer is True for answer in answers]


def document(letter: Letter, masks: FieldMasks = NO_MASKS) -> bytes:
    """What a program sees of a letter. A body that is JSON is put in as it stands: no number is rounded."""
    read = masked(read_inside(letter), masks).inside
    rest = {"headers": plain_table(read.headers), "properties": plain_properties(read.properties)}
    return b'{"body":' + _body(read.body) + b"," + json.dumps(rest).encode()[1:]


def _body(body: bytes) -> bytes:
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return b"null"
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return json.dumps(text).encode()
    return text.strip().encode()
