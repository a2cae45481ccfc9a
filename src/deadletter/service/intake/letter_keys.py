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
from deadletter.core.letter import names
from deadletter.core.letter.chosen_headers import ChosenHeaders, CutHeaders
from deadletter.core.letter.envelope import ExchangeKey
from deadletter.core.letter.header_values import MAX_NAME_BYTES
from deadletter.core.letter.letter import Letter

_X_DEATH: Final = names.X_DEATH.encode()
_ID: Final = names.ID.encode()
_RELEASED_AT: Final = names.RELEASED_AT.encode()
_APART: Final = (_ID, _RELEASED_AT)
_unpack: Final = Struct(">q").unpack_from
_TEXT: Final = ord("S")
_LONG: Final = ord("l")
_ALWAYS: Final = frozenset(
    name.encode()
    for name in (
        names.X_DEATH,
        *FIRST_DEATH,
        names.DEATHS,
        names.ATTEMPT,
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


class _Last(NamedTuple):
    """The last letter's: one of which the very same was cut out, and that came the same way, has its key."""

    chosen: CutHeaders | None
    came_by: ExchangeKey
    key: LetterKey | None


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
        self._headers = ChosenHeaders(frozenset(wanted), apart=_APART)
        self._came_last = ExchangeKey(b"", b""), _start(ExchangeKey(b"", b""))
        self._last = _Last(None, ExchangeKey(b"", b""), None)
        # What tells one letter from all others is no part of the key, so a policy that asks for it sees each.
        self._whole = any(map(_looks_further, policies)) or not wanted.isdisjoint(_APART)
        self._content_type = any(policy.match.content_type is not None for policy in policies)
        self.groups: bool = any(policy.errors or policy.match.error_types for policy in policies)
        """Whether a policy looks at errors; only then letters are told apart by them."""

    def key(self, letter: Letter) -> LetterKey | None:
        """None: this letter has to be looked at by itself. Raises MessageError."""
        if self._whole:
            return None
        chosen = self._headers.of(letter.message.properties)
        letter.build = chosen.build
        if chosen is self._last.chosen and letter.came_by == self._last.came_by:
            return self._last.key
        if _X_DEATH not in chosen.names:
            return None
        identity, released = chosen.apart
        if letter.came_by != self._came_last[0]:
            self._came_last = letter.came_by, _start(letter.came_by)
        # What has a length of its own comes first, so that no letter can be written to be taken for another.
        start = self._came_last[1]
        letter_id = ""
        if identity:
            if identity[0] != _TEXT or not 5 < len(identity) <= 5 + MAX_NAME_BYTES:
                return None  # it is not taken for an id, which is another decision
            letter_id = identity[5:].decode("ascii", "replace")
            start += b"+"
        else:
            start += b"-"
        if self._content_type:
            content_type = repr(letter.view.content_type).encode()
            start += len(content_type).to_bytes(2) + content_type
        released_ms = int(_unpack(released, 1)[0]) if released and released[0] == _LONG else None
        key = LetterKey(start + chosen.together, letter_id, released_ms)
        if not self._content_type:
            self._last = _Last(chosen, letter.came_by, key)
        return key

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


def _start(came_by: ExchangeKey) -> bytes:
    exchange, routing_key = came_by
    return bytes((len(exchange), len(routing_key))) + exchange + routing_key


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
