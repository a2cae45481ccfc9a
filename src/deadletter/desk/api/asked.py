"""What the requests of all subjects share: names, numbers, pages, who it was.

Names of groups and letters in a path are numbers, or the beginning of a key or an id. Lists come in pages:
`more` is the `after` of the next one. What changes something says `who`.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from fastapi import Path, Query
from pydantic import BaseModel, ConfigDict, Field

from deadletter.core.grouping.letter_query import MAX_LIMIT
from deadletter.operations.records.records import WHO_CHARS

PREFIX: Final = "/api/v1"
NAME_CHARS: Final = 255
TEXT_CHARS: Final = 1_000
HEADERS: Final = 20
"""So many headers are asked for at once."""

Number = Annotated[int, Field(ge=0, lt=2**63)]
Name = Annotated[str, Field(min_length=1, max_length=NAME_CHARS)]
Text = Annotated[str, Field(max_length=TEXT_CHARS)]
GroupName = Annotated[
    str, Path(max_length=NAME_CHARS, description="Number, or the beginning of a key.", examples=["1"])
]
LetterName = Annotated[
    str, Path(max_length=NAME_CHARS, description="Number, or the beginning of an id.", examples=["1"])
]
Who = Annotated[str, Query(min_length=1, max_length=WHO_CHARS, description="Who does it, for the audit.")]
After = Annotated[Number | None, Query(description="`more` of the page before.")]
Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT)]


class Strict(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")


class AuditedWish(Strict):
    who: str = Field(
        default="api", min_length=1, max_length=WHO_CHARS, description="Who does it, for the audit."
    )
