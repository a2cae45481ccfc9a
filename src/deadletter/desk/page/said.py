"""What was just done, told on the page after it, with its undo.

It travels in a cookie that lives for a minute: the page after a form is another request, maybe at another
instance. A cookie can be set by others on this host (ports share them), so it holds words, which are shown
as text, and an undo of a closed set, which is checked like any form.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Final, Self

from fastapi import Request
from fastapi.responses import RedirectResponse

from deadletter.core.grouping.group_states import GroupState

COOKIE: Final = "dlq_said"
_LIFE_S: Final = 60
_CHARS: Final = 300
_GROUPS: Final = 50
_NAME: Final = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """`discard`: a discard that can be taken back. `groups`: states as they were, `number:state:until`.
    `row`, `recipe`, `view`: what is gone, by its name; the audit knows what it was."""

    text: str
    discard: int | None = None
    groups: tuple[str, ...] = ()
    row: str = ""
    recipe: str = ""
    view: str = ""

    @property
    def undone_at(self) -> str:
        """Where its undo is sent; empty: it has none."""
        if self.discard is not None:
            return "/letters/take-back"
        if self.groups:
            return "/groups/undo"
        if self.row:
            return "/policies/rows/undo"
        if self.recipe:
            return "/replays/recipes/undo"
        return "/views/undo" if self.view else ""

    @property
    def undo_fields(self) -> list[tuple[str, str]]:
        """What its form says."""
        fields = [("group", one) for one in self.groups]
        if self.discard is not None:
            fields.append(("discard", str(self.discard)))
        return fields + [("name", one) for one in (self.row or self.recipe or self.view,) if one]

    def packed(self) -> str:
        said = {
            "t": self.text[:_CHARS],
            "d": self.discard,
            "g": self.groups[:_GROUPS],
            "r": self.row[:_NAME],
            "n": self.recipe[:_NAME],
            "v": self.view[:_NAME],
        }
        return base64.urlsafe_b64encode(json.dumps(said).encode()).decode()

    @classmethod
    def unpacked(cls, cookie: str) -> Self | None:
        """None: it is not ours, or nobody can read it."""
        try:
            said = json.loads(base64.urlsafe_b64decode(cookie[:4_000]))
            discard = None if said["d"] is None else int(said["d"])
            groups = tuple(str(one) for one in said["g"][:_GROUPS] if before(str(one)) is not None)
            row, recipe, view = (str(said[key])[:_NAME] for key in ("r", "n", "v"))
            text = str(said["t"])[:_CHARS]
            return cls(text=text, discard=discard, groups=groups, row=row, recipe=recipe, view=view)
        except (ValueError, TypeError, LookupError, RecursionError):
            return None


def as_it_was(group: int, state: GroupState, until_ms: int | None) -> str:
    """A group's state, for an undo."""
    return f"{group}:{state.value}:{until_ms or 0}"


def before(said: str) -> tuple[int, GroupState, int | None] | None:
    """The number of a group and the state that it had; None: that is nothing of ours."""
    try:
        group, state, until_ms = said.split(":")
        return int(group), GroupState(state), int(until_ms) or None
    except ValueError:
        return None


def said_in(request: Request) -> Said | None:
    cookie = request.cookies.get(COOKIE)
    return None if not cookie else Said.unpacked(cookie)


def back_to(where: str, said: Said | None = None) -> RedirectResponse:
    """To the page that tells it. Only to a path of ours."""
    safe = where if where.startswith("/") and not where.startswith(("//", "/\\")) else "/"
    answer = RedirectResponse(safe, status_code=303)
    if said is not None:
        answer.set_cookie(COOKIE, said.packed(), max_age=_LIFE_S, httponly=True, samesite="strict", path="/")
    return answer
