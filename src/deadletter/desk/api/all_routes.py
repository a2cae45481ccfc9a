"""All subjects of the API, put into one app, with the problems that they may answer with."""

from __future__ import annotations

from fastapi import FastAPI

from deadletter.desk.answers.document import tell_document
from deadletter.desk.api.broker_api import broker_routes
from deadletter.desk.api.deploy_api import deploy_routes
from deadletter.desk.api.edit_api import edit_routes
from deadletter.desk.api.event_api import event_routes
from deadletter.desk.api.group_api import group_routes
from deadletter.desk.api.journal_api import journal_routes
from deadletter.desk.api.letter_api import letter_routes
from deadletter.desk.api.policy_api import policy_routes
from deadletter.desk.api.replay_api import replay_routes
from deadletter.desk.api.sources import MoreSources, RecordsSource, ReplaysSource
from deadletter.desk.api.view_api import view_routes
from deadletter.desk.problems import problems


def add_api(
    app: FastAPI,
    records: RecordsSource | None,
    replays: ReplaysSource | None,
    more: MoreSources,
) -> None:
    """`records`, `replays`: of the stored letters, where there is a store."""
    app.state.journal = more.journal
    _add_more(app, more, records)
    if records is not None:
        told = problems(
            _401="The token is missing or wrong.",
            _403="From another site's page; or from another machine, and no token is set.",
            _404="No letter or group is called so, or several are.",
            _409="The same request is under way.",
            _412="Somebody else changed it meanwhile; nothing was done.",
            _413="The body is too large.",
            _415="The body is not JSON.",
            _422="Not what is asked here, or a jq program that is none.",
            _503="The store does not answer.",
        )
        for routes in (letter_routes, group_routes):
            app.include_router(routes(records), responses=told)
    if replays is not None:
        told = problems(
            _401="The token is missing or wrong.",
            _403="From another site's page; or from another machine, and no token is set.",
            _404="There is no replay, letter or recipe of this name or number.",
            _409="The letter cannot be changed so, or the same request is under way.",
            _412="Somebody else changed it meanwhile; nothing was done.",
            _413="The body is too large.",
            _415="The body is not JSON.",
            _422="Not what is asked here, or not while the replay is in this state.",
            _503="The store does not answer.",
        )
        for of_replays in (replay_routes, edit_routes, deploy_routes):
            app.include_router(of_replays(replays), responses=told)
    tell_document(app)


def _add_more(app: FastAPI, more: MoreSources, records: RecordsSource | None) -> None:
    told = problems(
        _401="The token is missing or wrong.",
        _403="From another site's page; or from another machine, and no token is set.",
        _404="There is nothing of this name or number.",
        _409="The same request is under way.",
        _412="Somebody else changed it meanwhile; nothing was done.",
        _413="The body is too large.",
        _415="The body is not JSON.",
        _422="Not what is asked here.",
        _503="The broker or the store does not answer.",
    )
    if more.journal is not None:
        app.include_router(journal_routes(more.journal), responses=told)
    if more.outlook is not None:
        app.include_router(broker_routes(more.outlook, more.journal), responses=told)
    if more.journal is not None and records is not None:
        app.include_router(view_routes(more.journal, records), responses=told)
    if more.rulebook is not None and records is not None:
        app.include_router(policy_routes(more.rulebook, records), responses=told)
    if more.news is not None:
        app.include_router(event_routes(more.news), responses=told)
