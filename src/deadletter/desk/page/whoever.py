"""Who looks at the page: asked in one place."""

from __future__ import annotations

from typing import Final

from fastapi import Request

from deadletter.core.access.rights import Action, Role
from deadletter.desk.access.person import Person

_STRANGER: Final = Person(name="", role=Role.VIEWER)


def person_of(request: Request) -> Person:
    """Whose request this is; somebody who did not sign in sees what anybody may see."""
    found = request.state.person
    return found if isinstance(found, Person) else _STRANGER


class Mays:
    """For templates: `may.discard` is whether somebody may, by the name of the action in lower case. What is
    hidden here is refused anyway."""

    def __init__(self, person: Person) -> None:
        self._person = person

    def __getattr__(self, name: str) -> bool:
        try:
            action = Action[name.upper()]
        except KeyError:
            raise AttributeError(name) from None
        return self._person.may(action)


def called(request: Request) -> str:
    """Their name, for the audit."""
    return person_of(request).called("page")


def csrf_of(request: Request) -> str:
    """What forms of this person carry; empty where nobody signed in."""
    return str(request.state.csrf)
