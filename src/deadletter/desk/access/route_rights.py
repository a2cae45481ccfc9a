"""What each route takes: one table for the API and the pages.

A route that changes something and is not here is refused, and a test names it. One that shows something takes
at least `SEE`. Whatever a route does, the operations behind it ask for the right once more (`seen_records`,
`seen_replays`): this table is the first to say no, not the only one.
"""

from __future__ import annotations

from typing import Final

from fastapi import Request

from deadletter.core.access.rights import Action
from deadletter.desk.access.present import person
from deadletter.errors import NotAllowed

OPEN: Final = (
    "/metrics",
    "/health/live",
    "/health/ready",
    "/api/status",
    "/openapi.json",
    "/sign-in",
    "/sign-in/begin",
    "/sign-in/end",
    "/favicon.ico",
)
"""For everybody who reaches the service: how it is, and nothing of letters."""
OPEN_BELOW: Final = ("/static/",)
_LOOKS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_V1: Final = "/api/v1"
RIGHTS_OF_ROUTES: Final[dict[tuple[str, str], Action]] = {
    ("POST", "/sign-out"): Action.SEE,
    ("POST", "/api/sweeps"): Action.SWEEP,
    # pages
    ("POST", "/theme"): Action.SEE,
    ("POST", "/sweeps"): Action.SWEEP,
    ("POST", "/groups/state"): Action.CHANGE_GROUP,
    ("POST", "/groups/undo"): Action.CHANGE_GROUP,
    ("POST", "/groups/merge"): Action.CHANGE_GROUP,
    ("POST", "/groups/split"): Action.CHANGE_GROUP,
    ("POST", "/groups/{name}/category"): Action.CHANGE_GROUP,
    ("POST", "/groups/{name}/note"): Action.NOTE,
    ("GET", "/letters/export"): Action.EXPORT,
    ("POST", "/letters/selected"): Action.SEE,
    ("POST", "/letters/discard"): Action.DISCARD,
    ("POST", "/letters/take-back"): Action.DISCARD,
    ("GET", "/letters/{name}/edit"): Action.EDIT,
    ("POST", "/letters/{name}/edit"): Action.EDIT,
    ("GET", "/replays/new"): Action.REPLAY,
    ("POST", "/replays"): Action.REPLAY,
    ("POST", "/replays/{replay}/turn"): Action.REPLAY,
    ("POST", "/replays/{replay}/pace"): Action.REPLAY,
    ("POST", "/replays/recipes"): Action.EDIT,
    ("POST", "/replays/recipes/delete"): Action.EDIT,
    ("POST", "/replays/recipes/undo"): Action.EDIT,
    ("POST", "/replays/deploys"): Action.TELL_RELEASE,
    ("GET", "/waiting/let-out"): Action.HANDLE_WAITING,
    ("POST", "/waiting/let-out"): Action.HANDLE_WAITING,
    ("POST", "/policies/rows"): Action.SET_POLICY,
    ("POST", "/policies/rows/remove"): Action.SET_POLICY,
    ("POST", "/policies/rows/undo"): Action.SET_POLICY,
    ("POST", "/doctor/look"): Action.SEE,
    # views
    ("POST", "/views"): Action.SEE,
    ("POST", "/views/remove"): Action.SEE,
    ("POST", "/views/undo"): Action.SEE,
    ("PUT", f"{_V1}/views/{{name:path}}"): Action.SEE,
    ("DELETE", f"{_V1}/views/{{name:path}}"): Action.SEE,
    # letters
    ("POST", f"{_V1}/letters/discard"): Action.DISCARD,
    ("POST", f"{_V1}/letters/take-back"): Action.DISCARD,
    ("GET", f"{_V1}/archive"): Action.EXPORT,
    ("POST", f"{_V1}/archive"): Action.IMPORT,
    # groups
    ("PATCH", f"{_V1}/groups/{{name}}"): Action.CHANGE_GROUP,
    ("POST", f"{_V1}/groups/{{name}}/notes"): Action.NOTE,
    ("POST", f"{_V1}/groups/merge"): Action.CHANGE_GROUP,
    ("POST", f"{_V1}/groups/split"): Action.CHANGE_GROUP,
    ("POST", f"{_V1}/grouping/regroup"): Action.REGROUP,
    # replays
    ("POST", f"{_V1}/replays/preflight"): Action.SEE,
    ("POST", f"{_V1}/replays"): Action.REPLAY,
    ("POST", f"{_V1}/replays/{{replay}}/pause"): Action.REPLAY,
    ("POST", f"{_V1}/replays/{{replay}}/resume"): Action.REPLAY,
    ("POST", f"{_V1}/replays/{{replay}}/cancel"): Action.REPLAY,
    ("POST", f"{_V1}/replays/{{replay}}/pace"): Action.REPLAY,
    # edits
    ("POST", f"{_V1}/edits/preview"): Action.EDIT,
    ("POST", f"{_V1}/recipes"): Action.EDIT,
    ("DELETE", f"{_V1}/recipes/{{name:path}}"): Action.EDIT,
    ("GET", f"{_V1}/letters/{{name}}/draft"): Action.EDIT,
    ("PUT", f"{_V1}/letters/{{name}}/draft"): Action.EDIT,
    ("DELETE", f"{_V1}/letters/{{name}}/draft"): Action.EDIT,
    ("GET", f"{_V1}/letters/{{name}}/proposals"): Action.EDIT,
    # the broker
    ("POST", f"{_V1}/waiting/release"): Action.HANDLE_WAITING,
    ("POST", f"{_V1}/waiting/park"): Action.HANDLE_WAITING,
    ("POST", f"{_V1}/findings/look"): Action.SEE,
    # policies
    ("PUT", f"{_V1}/policies/rows/{{routing_key:path}}"): Action.SET_POLICY,
    ("DELETE", f"{_V1}/policies/rows/{{routing_key:path}}"): Action.SET_POLICY,
    # the service
    ("POST", f"{_V1}/deploys"): Action.TELL_RELEASE,
    ("GET", f"{_V1}/audit"): Action.SEE_AUDIT,
    ("GET", "/audit"): Action.SEE_AUDIT,
}


def is_open(path: str) -> bool:
    return path in OPEN or path.startswith(OPEN_BELOW)


def needed(method: str, route: str) -> Action | None:
    """None: nothing, it is open. KeyError: nobody said what it takes."""
    if is_open(route):
        return None
    if method in _LOOKS:
        return RIGHTS_OF_ROUTES.get((method, route), Action.SEE)
    return RIGHTS_OF_ROUTES[method, route]


async def rightful(request: Request) -> None:
    """Every route of the app depends on this."""
    route: str = getattr(request.scope.get("route"), "path", request.url.path)
    try:
        action = needed(request.method, route)
    except KeyError:
        raise NotAllowed(f"nobody said what {request.method} {route} takes, so nobody may") from None
    if action is not None:
        person().must(action)
