"""A replay that is thought of, as an address: which letters, where to, changed how, how fast.

All of it is in the query, so it can be sent to somebody, and the form that begins it says the same address.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Final, Literal
from urllib.parse import parse_qs

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from deadletter.core.grouping.letter_query import LetterOrder, LetterQuery, LetterState
from deadletter.core.replaying.replay_plan import OUTCOME_MS, selection_from
from deadletter.core.replaying.replay_target import HOME, ReplayTarget, ToExchange, ToQueue
from deadletter.core.text.amounts import parse_span
from deadletter.desk.api.asked import NAME_CHARS, Number
from deadletter.desk.page.search_words import MOST_CHARS, TEXTS, SearchWord, read, written
from deadletter.desk.page.shown import iso_time, query_text
from deadletter.errors import UsageError
from deadletter.operations.records.records import PROGRAM_CHARS
from deadletter.operations.replays.replay_told import SELECTED, EditWish, ReplayWish
from deadletter.operations.wording.pace_words import TypedPace

ADDRESS_CHARS: Final = 40_000
_OF_PACE: Final = {
    "canary": ("steps", "share", "wait", "room"),
    "auto": ("rate", "share", "room"),
    "all": ("rate",),
}
"""What a form says of another pace than the chosen one does not count."""
_LETTERS: Final = frozenset({"q", "where", "id", "group", "vhost"})
_SHORT = Field(default="", max_length=60)
_NAME = Field(default="", max_length=NAME_CHARS)


class PaceAsked(BaseModel):
    """A pace, as fields of a form. Empty: as usual."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="ignore")

    pace: Literal["canary", "auto", "all"] = "canary"
    steps: str = Field(default="", max_length=500)
    share: str = _SHORT
    wait: str = _SHORT
    room: str = _SHORT
    rate: str = _SHORT

    def typed(self) -> TypedPace:
        """UsageError: the room is no number."""
        room = self.room.replace(",", "").strip()
        if room and not (room.isascii() and room.isdigit() and 0 < len(room) < 10):
            raise UsageError(f"room: expected a number of letters, got {self.room!r}")
        counts = _OF_PACE[self.pace]
        said = {name: getattr(self, name).strip() or None for name in counts if name != "room"}
        return TypedPace(pace=self.pace, room=int(room) if room and "room" in counts else None, **said)


class ReplayAsked(PaceAsked):
    """The address of a replay that did not begin. `q`: a search as on the page of letters."""

    q: str = Field(default="", max_length=MOST_CHARS)
    where: str = Field(default="", max_length=PROGRAM_CHARS)
    id: Annotated[list[Number], Field(max_length=SELECTED)] = []
    group: Number | None = None
    vhost: str = _NAME
    to: Literal["origin", "queue", "exchange"] = "origin"
    to_queue: str = _NAME
    to_exchange: str = _NAME
    key: str = _NAME
    edit: str = Field(default="", max_length=PROGRAM_CHARS)
    recipe: str = _NAME
    outcome: str = _SHORT
    resolve: bool = False
    overrule: bool = False

    def says_nothing(self) -> bool:
        """Whether it names no letters at all."""
        return not (self.q.strip() or self.where.strip() or self.id or self.group is not None)

    def selection(self, now_ms: int) -> LetterQuery:
        """UsageError: the search is none, or is of letters that are not open."""
        found = read(self.q, now_ms=now_ms)
        if found.state not in (LetterState.OPEN, None):
            raise UsageError(f"state: only open letters are replayed, the search says {found.state.value}")
        return replace(
            found,
            ids=tuple(dict.fromkeys([*found.ids, *self.id])),
            group=found.group if self.group is None else self.group,
            where=self.where or None,
            state=LetterState.OPEN,
            order=LetterOrder.OLDEST,
        )

    def wish(self, now_ms: int) -> ReplayWish:
        """UsageError names what nobody can read."""
        if self.edit.strip() and self.recipe:
            raise UsageError("expected a program or a recipe, got both")
        return ReplayWish(
            selection=self.selection(now_ms),
            vhost=self.vhost,
            target=self._target(),
            edit=EditWish(program=self.edit.strip(), recipe=self.recipe),
            pace=self.typed().chosen(),
            outcome_ms=round(parse_span(self.outcome) * 1000) if self.outcome.strip() else OUTCOME_MS,
            resolves=self.resolve,
            overrules_guards=self.overrule,
        )

    def _target(self) -> ReplayTarget:
        match self.to:
            case "queue":
                if not self.to_queue:
                    raise UsageError("expected the name of the queue that they are to go to")
                return ToQueue(queue=self.to_queue)
            case "exchange":
                return ToExchange(exchange=self.to_exchange, key=self.key or None)
            case _:
                return HOME

    def said(self) -> dict[str, object]:
        """What of it an address has to say."""
        plain = type(self)()
        named = {
            name: value
            for name, value in self.model_dump(mode="json").items()
            if value != getattr(plain, name)
        }
        return {name: 1 if value is True else value for name, value in named.items()}

    def address(self, **changes: object) -> str:
        return f"/replays/new{query_text(self.said(), **changes)}"

    def search(self) -> str:
        """The letters themselves, as a search."""
        words = [SearchWord("id", str(one)) for one in self.id]
        words += [] if self.group is None else [SearchWord("group", str(self.group))]
        q = " ".join(filter(None, (self.q.strip(), written(tuple(words)))))
        return f"/letters{query_text({'q': q, 'where': self.where})}"


def asked_in(address: str) -> ReplayAsked:
    """What a form brings back. UsageError: it is none of ours."""
    if len(address) > ADDRESS_CHARS:
        raise UsageError("expected the address of a replay, got more than an address holds")
    try:
        found = parse_qs(address.partition("?")[2], max_num_fields=SELECTED + 100)
        said = {name: values if name == "id" else values[0] for name, values in found.items()}
        return ReplayAsked.model_validate(said)
    except (ValueError, ValidationError) as error:
        raise UsageError("expected the address of a replay, got something else") from error


def tried_code(asked: ReplayAsked, program: str) -> str:
    """Of an edit and a selection as they were typed: who says it has seen what they do together."""
    letters = {name: value for name, value in asked.said().items() if name in _LETTERS}
    said = json.dumps([letters, program], sort_keys=True)
    return hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def search_of(selection: Mapping[str, Any]) -> str:
    """Which letters a replay was begun for, as a search; empty: all of them, or nobody here can say it."""
    try:
        query = selection_from(selection)
    except (TypeError, ValueError):
        return ""
    words = [SearchWord("id", str(one)) for one in query.ids]
    words += [SearchWord(name, value) for name, field in TEXTS.items() if (value := getattr(query, field))]
    words += [] if query.group is None else [SearchWord("group", str(query.group))]
    for name, at_ms in (("since", query.died_from_ms), ("until", query.died_until_ms)):
        words += [] if at_ms is None else [SearchWord(name, iso_time(at_ms))]
    words += [SearchWord(f"header.{name}", pattern) for name, pattern in query.headers]
    return " ".join(filter(None, (written(tuple(words)), query.text)))


def which_words(selection: Mapping[str, Any]) -> str:
    """Which letters, for people, in a line."""
    ids = selection.get("ids") or ()
    if len(ids) > 1:
        return f"{len(ids):,} letters by number"
    said = [search_of(selection), f"where {selection['where']}" if selection.get("where") else ""]
    return " ".join(filter(None, said)) or "all that were open"
