"""Policies, told by the settings in force and the table of the store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Final

from deadletter.config.settings import Settings
from deadletter.core.access.field_masks import NO_MASKS, FieldMasks
from deadletter.core.deciding.decide import Answer, Circumstances, questions
from deadletter.core.deciding.decision import Retry
from deadletter.core.deciding.event_config import InForce, Row, check_new, in_force
from deadletter.core.deciding.explain import ExplainedStep, explain, failing_again
from deadletter.core.deciding.letter_view import LetterView, view_letter
from deadletter.core.deciding.policy import JqCondition, Policies
from deadletter.core.grouping.stored_letter import read_inside
from deadletter.core.letter.header_values import shown
from deadletter.core.replaying.masked_letter import hidden, masked
from deadletter.errors import ChangedMeanwhile, NotStored, StoreError
from deadletter.jq.process import Asked, JqProcess
from deadletter.operations.journal.journal import Journal
from deadletter.operations.records.store_records import StoreRecords
from deadletter.operations.rulebook.file_rulebook import policy_told
from deadletter.operations.rulebook.rulebook import (
    ConsideredTold,
    ExplanationTold,
    PoliciesTold,
    RowRemoved,
    RowTold,
    StepTold,
    row_version,
)
from deadletter.store.opening import open_store
from deadletter.store.store_address import address_text, parse

_ANSWERS: Final = {True: Answer.YES, False: Answer.NO, None: Answer.UNANSWERED}
_NAME_CHARS: Final = 255


class StoreRulebook:
    """`url`: of the store. What people change is audited in the journal."""

    def __init__(
        self,
        url: str,
        settings: Callable[[], Settings],
        records: Callable[[], Awaitable[StoreRecords]],
        journal: Callable[[], Awaitable[Journal]],
    ) -> None:
        self._url = url
        self._settings = settings
        self._records = records
        self._journal = journal
        self._changing = asyncio.Lock()

    async def policies(self) -> PoliciesTold:
        settings = self._settings()
        trouble = None
        rows: list[Row] = []
        try:
            rows = await self._rows()
        except StoreError as error:
            trouble = str(error)
        together = _together(rows, settings)
        return PoliciesTold(
            policies=tuple(policy_told(one, settings.policies) for one in together.policies),
            rows=tuple(
                RowTold(routing_key=row.name, max_retries=row.max_retries)
                for row in _deciding(rows).values()
                if row.name is not None and row.max_retries is not None
            ),
            file=None if settings.file is None else str(settings.file),
            store=address_text(parse(self._url)),
            store_error=trouble,
            ignored=together.warnings,
        )

    async def explain(self, letter: str, masks: FieldMasks = NO_MASKS) -> ExplanationTold:
        detail = await (await self._records()).opened.letter(letter)
        inside = await asyncio.to_thread(read_inside, detail.letter)
        seen = await asyncio.to_thread(masked, inside, masks)
        shown_headers = seen.inside.headers
        # not even in part: what is masked, and what quotes it
        unquoted = {name for name, value in inside.headers.items() if shown_headers.get(name) != value}
        policies = _together(await self._rows(), self._settings()).policies
        now = datetime.now(UTC)
        view = view_letter(
            failing_again(inside.headers, now),
            broker_keeps_client_deaths=False,
            content_type=inside.properties.content_type,
            body=inside.body,
        )
        told = explain(
            view,
            policies,
            now=now,
            circumstances=Circumstances(continuous=True, sees_room=True),
            answers=await _answers(view, policies, inside.body),
            unquoted=unquoted if masks else (),
        )
        first = told.steps[0].decision
        explained = ExplanationTold(
            letter=detail.row.id,
            provenance=type(view.provenance).__name__.lower(),
            origin=None if view.origin is None else shown(view.origin.queue, _NAME_CHARS),
            reason=view.reason,
            error_type=None if view.failure is None else view.failure.error_type,
            attempt=first.attempt - 1 if isinstance(first, Retry) else first.attempt,
            considered=tuple(
                ConsideredTold(policy=shown(one.policy, _NAME_CHARS), refusal=one.refusal)
                for one in told.considered
            ),
            schedule=told.schedule,
            steps=tuple(map(_step, told.steps)),
            left_out=told.left_out,
        )
        return hidden(explained, seen.secrets)

    async def row(self, routing_key: str) -> RowTold:
        found = _deciding(await self._rows()).get(routing_key)
        if found is None or found.max_retries is None:
            raise NotStored(f"no row of the table is for {shown(routing_key, _NAME_CHARS)!r}")
        return RowTold(routing_key=routing_key, max_retries=found.max_retries)

    async def set_row(self, routing_key: str, max_retries: int, *, who: str, version: str = "") -> RowTold:
        check_new(routing_key, max_retries)
        async with self._changing:
            await self._unchanged(routing_key, version)
            async with open_store(self._url) as store:
                await store.set_event(routing_key, max_retries)
            await (await self._journal()).noted(
                who, "policy set", {"routing_key": routing_key, "max_retries": max_retries}
            )
        return RowTold(routing_key=routing_key, max_retries=max_retries)

    async def remove_row(self, routing_key: str, *, who: str, version: str = "") -> RowRemoved:
        async with self._changing:
            await self._unchanged(routing_key, version)
            before = _deciding(await self._rows()).get(routing_key)
            async with open_store(self._url) as store:
                removed = await store.remove_event(routing_key)
            if not removed:
                raise NotStored(f"no row of the table is for {shown(routing_key, _NAME_CHARS)!r}")
            retries = None if before is None else before.max_retries
            told = {"routing_key": routing_key, "max_retries": retries}
            await (await self._journal()).noted(who, "policy removed", told)
        return RowRemoved(routing_key=routing_key, removed=removed)

    async def _rows(self) -> list[Row]:
        async with open_store(self._url, prepare=False) as store:
            return await store.event_rows()

    async def _unchanged(self, routing_key: str, version: str) -> None:
        """Whoever writes to the table by other ways than this service is not waited for."""
        if not version:
            return
        found = _deciding(await self._rows()).get(routing_key)
        number = None if found is None else found.max_retries
        if row_version(routing_key, number) != version:
            now = "there is none now" if number is None else f"it has {number} retries now"
            raise ChangedMeanwhile(
                f"the row for {shown(routing_key, _NAME_CHARS)} is no longer as you saw it: {now}; look "
                "again, nothing was changed"
            )


def _together(rows: list[Row], settings: Settings) -> InForce:
    file = settings.policies
    return in_force(rows, file=file, backoff=file.default.backoff)


def _deciding(rows: list[Row]) -> dict[str, Row]:
    """By name; the newest row of a name decides."""
    found: dict[str, Row] = {}
    for row in rows:  # the newest first
        if row.name is not None:
            found.setdefault(row.name, row)
    return dict(sorted(found.items()))


def _step(step: ExplainedStep) -> StepTold:
    decision = step.decision
    return StepTold(
        after_ms=step.after_ms,
        decision=type(decision).__name__.lower(),
        attempt=decision.attempt,
        policy=decision.policy,
        cause=decision.cause,
        why=decision.why,
        delay_ms=decision.delay_ms if isinstance(decision, Retry) else None,
        choices_ms=step.choices_ms,
    )


async def _answers(letter: LetterView, policies: Policies, body: bytes) -> Mapping[JqCondition, Answer]:
    asked = questions(letter, policies)
    if not asked:
        return {}
    jq = JqProcess()
    try:
        (said,) = await jq.ask([Asked(body, tuple(one.program for one in asked))])
    finally:
        await jq.close()
    return {one: _ANSWERS[said[one.program]] for one in asked}
