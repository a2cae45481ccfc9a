"""Which headers a set of policies looks at, and the part of a letter that decides about it.

Two letters whose bytes agree there get the same decision, chance aside. `Reader.key` is those bytes. It is
None where that is not so: a policy that looks at the body, at the error a framework left, or at the age must
see each letter; and a letter without deaths is read as a whole, because only a framework's header can say
where it failed.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final, NamedTuple

from deadletter.core.deciding.deaths import FIRST_DEATH, NamedHeader, OriginBy
from deadletter.core.deciding.letter_view import LetterView, view_letter
from deadletter.core.deciding.place import Place
from deadletter.core.deciding.policy import Policies, Policy
from deadletter.core.letter import field_table, names
from deadletter.core.letter.envelope_parts import checked_headers
from deadletter.core.letter.header_values import MAX_NAME_BYTES
from deadletter.core.letter.letter import Letter

_X_DEATH: Final = names.X_DEATH.encode()
_ID: Final = names.ID.encode()
_RELEASED_AT: Final = names.RELEASED_AT.encode()
_unpack: Final = Struct(">q").unpack_from
_TEXT: Final = ord("S")
_LONG: Final = ord("l")
_ALWAYS: Final = frozenset(
    name.encode()
    for name in (
        names.X_DEATH,
        *FIRST_DEATH,
        names.ID,
        names.DEATHS,
        names.ATTEMPT,
        names.RELEASED_AT,
        names.HOME,
        names.ORIGIN_QUEUE,
        names.ORIGIN_EXCHANGE,
        names.ORIGIN_ROUTING_KEY,
    )
)


class LetterKey(NamedTuple):
    """What decides about a letter; and its id and when it was released, which do not."""

    value: bytes
    letter_id: str
    released_ms: int | None


class LetterReader:
    """Reads letters for one set of policies."""

    def __init__(
        self,
        policies: Policies,
        *,
        keeps_client_deaths: bool,
        origin_by: OriginBy = OriginBy.FAILURE,
        place: Callable[[], Place | None] = lambda: None,
    ) -> None:
        self._keeps_client_deaths = keeps_client_deaths
        self._origin_by = origin_by
        self._place = place
        """Where the letters are, with the shape of the broker as it was last seen."""
        wanted = set(_ALWAYS)
        for policy in policies:
            wanted |= {match.header.encode() for match in policy.match.headers}
            if isinstance(policy.count_by, NamedHeader):
                wanted.add(policy.count_by.header.encode())
        self._wanted = frozenset(wanted)
        self._whole = any(map(_looks_further, policies))
        self._content_type = any(policy.match.content_type is not None for policy in policies)
        self.groups: bool = any(policy.errors or policy.match.error_types for policy in policies)
        """Whether a policy looks at errors; only then letters are told apart by them."""

    def key(self, letter: Letter) -> LetterKey | None:
        """None: this letter has to be looked at by itself. Raises MessageError."""
        if self._whole:
            return None
        headers = checked_headers(letter.message.properties)
        exchange, routing_key = letter.came_by
        parts = [bytes((len(exchange), len(routing_key))), exchange, routing_key]
        died = False
        letter_id = ""
        released_ms: int | None = None
        for name, at, start, end in field_table.find(headers, self._wanted):
            if name == _ID and headers[start] == _TEXT and 5 < end - start <= 5 + MAX_NAME_BYTES:
                letter_id = headers[start + 5 : end].decode("ascii", "replace")
                parts.append(b"id")  # any other value is not taken for one, which is another decision
                continue
            if name == _RELEASED_AT:
                if headers[start] == _LONG:
                    released_ms = int(_unpack(headers, start + 1)[0])
                continue
            died = died or name == _X_DEATH
            parts.append(headers[at:end])
        if not died:
            return None
        if self._content_type:
            parts.append(repr(letter.view.content_type).encode())
        return LetterKey(b"".join(parts), letter_id, released_ms)

    def view(self, letter: Letter) -> LetterView:
        """The letter as a decision sees it. Raises MessageError."""
        return view_letter(
            letter.headers,
            broker_keeps_client_deaths=self._keeps_client_deaths,
            content_type=letter.view.content_type,
            body=letter.body,
            by=self._origin_by,
            place=self._place(),
            came_by=(letter.exchange, letter.routing_key),
        )


def _looks_further(policy: Policy) -> bool:
    return bool(
        policy.errors
        or policy.match.error_types
        or policy.match.body is not None
        or policy.deadline_ms is not None
    )


def id_of(view: LetterView) -> str:
    """The id a letter carries, as `LetterKey` has it."""
    found = view.headers.get(names.ID)
    return found if isinstance(found, str) else ""


def released_of(view: LetterView) -> int | None:
    """When it was last sent home, as `LetterKey` has it."""
    found = view.headers.get(names.RELEASED_AT)
    return found if isinstance(found, int) else None
