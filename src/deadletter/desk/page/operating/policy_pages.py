"""Policies: each with its schedule drawn, tried on a letter, and rows of the table."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from deadletter.core.deciding.backoff import MAX_RETRIES
from deadletter.core.deciding.event_config import MAX_NAME_CHARS
from deadletter.core.text.durations import duration_text, rough_duration_text
from deadletter.desk.page.forms import form_of, whole_number
from deadletter.desk.page.frame import PageFrame
from deadletter.desk.page.operating.schedule_drawing import draw_schedule
from deadletter.desk.page.said import Said, back_to
from deadletter.desk.page.store_sources import NO_STORE, StoreSources
from deadletter.desk.page.taken_back import removed_by
from deadletter.desk.page.whoever import called
from deadletter.errors import NotStored, StoreUnreachable, UsageError
from deadletter.operations.rulebook.rulebook import (
    ExplanationTold,
    MatchTold,
    PolicyTold,
    Rulebook,
    StepTold,
    row_version,
)

_LETTER_CHARS: Final = 64


class PoliciesAsked(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(extra="ignore")

    letter: str = Field(default="", max_length=_LETTER_CHARS)


def policy_routes(frame: PageFrame, sources: StoreSources) -> APIRouter:
    routes = APIRouter(include_in_schema=False)

    def rulebook() -> Rulebook:
        if sources.more.rulebook is None:
            raise StoreUnreachable(NO_STORE)
        return sources.more.rulebook

    @routes.get("/policies")
    async def policies(request: Request, asked: Annotated[PoliciesAsked, Query()]) -> Response:
        told = await rulebook().policies()
        explained, wrong = None, ""
        if asked.letter.strip():
            try:
                seen = await (await sources.records()).letter(asked.letter.strip())  # NotStored: not theirs
                explained = await rulebook().explain(str(seen.letter.id), request.state.masks)
            except (NotStored, UsageError) as error:
                wrong = str(error)
        decides = None if explained is None else _decides(explained)
        return await frame.page(
            request,
            "operating/policies.html",
            asked=asked,
            told=told,
            policies=[_policy(one, decides=one.name == decides) for one in told.policies],
            explained=explained,
            steps=[] if explained is None else [_step(one) for one in explained.steps],
            refusals={} if explained is None else {one.policy: one.refusal for one in explained.considered},
            wrong=wrong,
            most=MAX_RETRIES,
        )

    @routes.post("/policies/rows")
    async def set_row(request: Request) -> Response:
        """So many retries for a routing key. `version`: of the row as it was looked at."""
        form = await form_of(request)
        key = form.text("routing_key", MAX_NAME_CHARS).strip()
        retries = whole_number("max_retries", form.text("max_retries").strip())
        done = await rulebook().set_row(key, retries, who=called(request), version=form.text("version"))
        times = f"{done.max_retries:,} {'retry' if done.max_retries == 1 else 'retries'}"
        said = f"{done.routing_key}: {times}, within seconds"
        return back_to("/policies#rows", Said(text=said))

    @routes.post("/policies/rows/remove")
    async def remove_row(request: Request) -> Response:
        form = await form_of(request)
        key = form.text("routing_key", MAX_NAME_CHARS)
        await rulebook().remove_row(key, who=called(request), version=form.text("version"))
        said = f"{key}: the row is gone, the file decides again"
        return back_to("/policies#rows", Said(text=said, row=key))

    @routes.post("/policies/rows/undo")
    async def undo(request: Request) -> Response:
        """A row that whoever asks removed is there again, unless there is another one now."""
        key = (await form_of(request)).text("name", MAX_NAME_CHARS)
        gone = await removed_by(sources.more, called(request), "policy removed", "routing_key", key)
        retries = whole_number("max_retries", str(gone.detail.get("max_retries", "")))
        nothing = row_version(key, None)
        done = await rulebook().set_row(key, retries, who=called(request), version=nothing)
        return back_to("/policies#rows", Said(text=f"{done.routing_key}: the row is back"))

    return routes


def _policy(policy: PolicyTold, *, decides: bool) -> dict[str, object]:
    return {
        "told": policy,
        "decides": decides,
        "match": match_words(policy.match),
        "deadline": None if policy.deadline_ms is None else duration_text(policy.deadline_ms),
        "treatments": [(one, draw_schedule(one)) for one in policy.treatments],
    }


def match_words(match: MatchTold) -> list[tuple[str, str]]:
    """Each condition: what it is about, and what is wanted. None: everything fits."""
    said = (
        ("queue", match.queue),
        ("routing key", match.routing_key),
        ("reason", " or ".join(match.reason)),
        ("error", " or ".join(match.error_type)),
        ("content type", match.content_type),
        ("body", match.body),
    )
    found = [(name, value) for name, value in said if value]
    return found + [(f"header {name}", value) for name, value in match.header.items()]


def _decides(explained: ExplanationTold) -> str | None:
    return next((one.policy for one in explained.considered if one.refusal is None), None)


def _step(step: StepTold) -> tuple[str, str, str]:
    """When, what, why: if every retry fails at once."""
    when = "now" if step.after_ms == 0 else f"after {rough_duration_text(step.after_ms)}"
    what = step.decision
    if step.choices_ms:
        what = "retry after " + " or ".join(duration_text(one) for one in step.choices_ms)
    return when, what, step.why
