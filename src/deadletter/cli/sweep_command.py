"""`dlq sweep`: asks the running service to sweep dead-letter queues now."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from deadletter.cli.terminal.output import Exit, columns, data, result
from deadletter.cli.terminal.units import count
from deadletter.core.text.durations import elapsed_text
from deadletter.core.text.safe_text import line
from deadletter.errors import DeadletterError, Unreachable, UsageError
from deadletter.http.answers import HttpAnswer, HttpFailed, NobodyAnswers
from deadletter.http.asking import asking
from deadletter.operations.service_address import CONNECT_S, service_url, token_headers, trusts_environment

_ANSWER_S: Final = 900.0
"""A sweep of many letters takes its time."""
_ASK: Final = "start the service with: dlq serve; one that answers no HTTP sweeps on SIGUSR1"


def run(*, dlqs: Sequence[str], at: str, token: str | None, as_json: bool) -> Exit:
    answer = asyncio.run(_ask(service_url(at), {"dlqs": list(dlqs)}, token))  # one question: no uvloop for it
    sweeps = _sweeps(answer, at)
    if as_json:
        data({"sweeps": sweeps})
    else:
        result(_as_text(sweeps))
    whole = all(one["state"] != "failed" and not one["failed"] and not one["left"] for one in sweeps)
    return Exit.DONE if whole else Exit.LEFT


async def _ask(url: str, wish: Mapping[str, object], token: str | None) -> HttpAnswer:
    headers = token_headers(token, url)
    try:
        async with asking(
            url, headers=headers, answer_s=_ANSWER_S, connect_s=CONNECT_S, proxies=trusts_environment(url)
        ) as service:
            return await service.ask("POST", "api/sweeps", wish)
    except NobodyAnswers as error:
        raise Unreachable(f"nobody answers at {url} ({error}); {_ASK}") from error
    except HttpFailed as error:
        raise Unreachable(
            f"{url} did not answer to the end ({error}); what it has begun goes on, asking again does no harm"
        ) from error


def _sweeps(answer: HttpAnswer, at: str) -> list[dict[str, Any]]:
    try:
        told = answer.json()
        if answer.status == 200:
            return [{**_EMPTY, **one, "dlq": one["dlq"], "state": one["state"]} for one in told["sweeps"]]
        detail = str(told["detail"])
    except (ValueError, KeyError, TypeError) as error:
        raise Unreachable(
            f"somebody answers at {at} (HTTP {answer.status}), but not dlq serve; {_ASK}"
        ) from error
    if answer.status in (400, 404, 422):
        raise UsageError(detail)
    if answer.status == 503:
        raise Unreachable(f"the service at {at} cannot sweep now: {detail}")
    raise DeadletterError(f"the service refuses: {detail}")


_EMPTY: Final = {"seen": 0, "moved": 0, "left": 0, "failed": 0, "seconds": 0.0, "why": ""}


def _as_text(sweeps: Sequence[Mapping[str, Any]]) -> str:
    if not sweeps:
        return "nothing to sweep: every watched queue is consumed all the time, or none is there"
    rows = [["queue", "", "seen", "moved", "left", "failed", "took"]]
    rows += [
        [s["dlq"], s["state"], *(f"{s[key]:,}" for key in ("seen", "moved", "left", "failed")), _took(s)]
        for s in sweeps
    ]
    lines = [columns(rows), *(line(f"{s['dlq']}: {s['why']}") for s in sweeps if s["why"])]
    moved = sum(s["moved"] for s in sweeps)
    seen = sum(s["seen"] for s in sweeps)
    lines.append(f"moved {count(moved)} of {seen:,} in {count(len(sweeps), 'queue')}")
    return "\n".join(lines)


def _took(sweep: Mapping[str, Any]) -> str:
    return elapsed_text(sweep["seconds"]) if sweep["state"] == "swept" else "–"
