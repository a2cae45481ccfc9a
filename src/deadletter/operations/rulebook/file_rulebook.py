"""Policies of the file alone: there is no store, so no table of rows and no letter to try them on."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from deadletter.config.settings import Settings
from deadletter.core.access.field_masks import NO_MASKS, FieldMasks
from deadletter.core.deciding.event_config import from_table
from deadletter.core.deciding.policy import Match, Policies, Policy
from deadletter.errors import StoreUnreachable
from deadletter.operations.rulebook.rulebook import (
    ExplanationTold,
    MatchTold,
    PoliciesTold,
    PolicyFrom,
    PolicyTold,
    RowRemoved,
    RowTold,
    TreatmentTold,
)


class FileRulebook:
    """What needs a store is refused: StoreUnreachable."""

    def __init__(self, settings: Callable[[], Settings]) -> None:
        self._settings = settings

    async def policies(self) -> PoliciesTold:
        settings = self._settings()
        file = settings.policies
        return PoliciesTold(
            policies=tuple(policy_told(one, file) for one in file),
            rows=(),
            file=None if settings.file is None else str(settings.file),
            store=None,
            store_error=None,
            ignored=(),
        )

    async def explain(  # as `Rulebook` has them
        self,
        letter: str,  # noqa: ARG002
        masks: FieldMasks = NO_MASKS,  # noqa: ARG002
    ) -> ExplanationTold:
        self._refuse()

    async def row(self, routing_key: str) -> RowTold:  # noqa: ARG002 -- as `Rulebook` has them
        self._refuse()

    async def set_row(  # as `Rulebook` has them
        self,
        routing_key: str,  # noqa: ARG002
        max_retries: int,  # noqa: ARG002
        *,
        who: str,  # noqa: ARG002
        version: str = "",  # noqa: ARG002
    ) -> RowTold:
        self._refuse()

    async def remove_row(self, routing_key: str, *, who: str, version: str = "") -> RowRemoved:  # noqa: ARG002 -- as `Rulebook` has them
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise StoreUnreachable(
            "there is no store, so there is no table of rows and no letter is kept here; the policies of the "
            "file are in force; in deadletter.toml: [store] with a url"
        )


def policy_told(policy: Policy, file: Policies) -> PolicyTold:
    """`file`: those of the file, to tell from which it is."""
    return PolicyTold(
        name=policy.name,
        source=PolicyFrom.TABLE if from_table(policy, file) else PolicyFrom.FILE,
        match=_match(policy.match),
        treatments=tuple(
            TreatmentTold(
                error_types=one.error_types,
                retries=one.schedule.retries,
                rungs_ms=one.schedule.rungs,
                then=one.then.value,
                text=one.schedule.text(one.then.value),
            )
            for one in policy.treatments
        ),
        deadline_ms=policy.deadline_ms,
        budget_per_minute=policy.budget_per_minute,
        text=policy.text(),
    )


def _match(match: Match) -> MatchTold:
    return MatchTold(
        queue=match.queue,
        routing_key=match.routing_key,
        reason=tuple(sorted(match.reasons)),
        error_type=tuple(match.error_types),
        header={wanted.header: wanted.value for wanted in match.headers},
        content_type=match.content_type,
        body=match.body.program if match.body else None,
    )
