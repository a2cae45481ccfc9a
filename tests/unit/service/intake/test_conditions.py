"""Body conditions: what counts as yes, and that no program gets out of its bounds.

About `service.intake.conditions`, `jq.process`, `jq.worker`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from deadletter.core.deciding.decide import Answer
from deadletter.core.deciding.policy import JqCondition
from deadletter.core.guards import switch
from deadletter.core.guards.switch import FAILURES
from deadletter.errors import JqUnavailable
from deadletter.jq import worker_process
from deadletter.jq.process import refusals
from deadletter.jq.worker_process import JqLimits
from deadletter.service.intake.conditions import Conditions, Question
from deadletter.service.telling.service_events import Recovered, ServiceEvent, Trouble

YES, NO, UNANSWERED = Answer.YES, Answer.NO, Answer.UNANSWERED
ENDLESS = "def f: f; f"


@pytest.fixture
async def conditions() -> AsyncIterator[Conditions]:
    async with Conditions(JqLimits(time_ms=100)) as running:
        yield running


async def said(conditions: Conditions, program: str, *bodies: bytes) -> list[Answer]:
    condition = JqCondition(program=program)
    answers = await conditions.answer([Question(body, (condition,)) for body in bodies])
    return [answer[condition] for answer in answers]


@pytest.mark.parametrize(
    ("program", "body", "answer"),
    [
        (".total > 100", b'{"total": 101}', YES),
        (".total > 100", b'{"total": 100}', NO),
        (".total", b'{"total": 0}', YES),  # only false and null are no, as everywhere in jq
        (".total", b"{}", NO),
        ("select(.total > 100)", b'{"total": 101}', YES),
        ("select(.total > 100)", b'{"total": 1}', NO),
        (".items[].late", b'{"items": [{"late": false}, {"late": true}]}', YES),
        (".items[].late", b'{"items": []}', NO),
        ("empty", b"{}", NO),
        ("true # a comment at the end", b"{}", YES),
        ("def big: . > 10; .total | big", b'{"total": 11}', YES),
        ("range(1e12)", b"1", YES),  # stops at the first
        (".a.b", b'"text"', NO),  # an error in the program
        ('error("no")', b"{}", NO),
        ("true, error(0)", b"{}", YES),
        ("false, error(0)", b"{}", NO),
        ("halt", b"{}", NO),
        ("halt_error", b"{}", NO),
        ("input", b"1 2", NO),
        ("true", b"not JSON", NO),
        ("true", b"", NO),
        ("true", b"1 2", NO),  # two JSON texts are not one
        ("true", b'{"cut": "of', NO),
        ("true", b'"\xff\xfe"', NO),
        ("true", b'"\x00"', NO),
        ('. == "\\u0000"', b'"\\u0000"', YES),
        (". == 12345678901234567890", b"12345678901234567890", YES),
    ],
)
async def test_what_counts_as_yes(conditions: Conditions, program: str, body: bytes, answer: Answer) -> None:
    assert await said(conditions, program, body) == [answer]
    assert conditions.restarts == 0


@pytest.mark.parametrize(
    "program",
    [
        ENDLESS,
        "[range(1e12)] | length > 3",
        "range(1e12) | . < 0",
        'first(range(1e12) | tostring | select(. == "x"))',
        'reduce range(60) as $n ("x"; . + .) | length > 0',  # memory
    ],
)
async def test_what_breaks_a_bound_has_no_answer_and_hurts_nobody_else(
    conditions: Conditions, program: str
) -> None:
    bad, good = JqCondition(program=program), JqCondition(program=".n > 1")
    answers = await conditions.answer(
        [
            Question(b'{"n": 1}', (good,)),
            Question(b'{"n": 2}', (good, bad)),
            Question(b'{"n": 3}', (bad, good)),
            Question(b'{"n": 4}', (good,)),
        ]
    )
    assert answers == [
        {good: NO},
        {good: YES, bad: UNANSWERED},
        {bad: UNANSWERED, good: YES},
        {good: YES},
    ]
    assert conditions.restarts == 2


async def test_the_time_limit_is_the_kernels(conditions: Conditions, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ended by its own CPU time, long before anybody who waits by the clock would."""
    monkeypatch.setattr(JqLimits, "clock_s", 60)
    async with asyncio.timeout(60):
        assert await said(conditions, ENDLESS, b"1") == [UNANSWERED]


async def test_the_time_limit_is_per_question(conditions: Conditions) -> None:
    slow = "[range(2e4)] | length > 0"  # some ms each, together far above the limit
    assert await said(conditions, slow, *[b"1"] * 60) == [YES] * 60
    assert conditions.restarts == 0


async def test_a_body_above_the_limit_is_not_even_sent() -> None:
    async with Conditions(JqLimits(body_bytes=1000)) as conditions:
        fits, big = b'"%s"' % (b"x" * 998), b'"%s"' % (b"x" * 999)
        assert await said(conditions, "true", fits, big, b"1") == [YES, UNANSWERED, YES]
        assert conditions.restarts == 0


async def test_many_large_bodies_in_one_round_trip(conditions: Conditions) -> None:
    large = b'{"n": 1, "more": "%s"}' % (b"x" * 500_000)
    assert await said(conditions, ".n == 1", *[large, b'{"n": 2}'] * 20) == [YES, NO] * 20


async def test_a_worker_that_somebody_kills_between_batches_is_replaced_without_blame(
    conditions: Conditions,
) -> None:
    assert await said(conditions, "true", b"1") == [YES]
    worker = conditions._jq._worker._process
    assert worker is not None
    worker.kill()
    await worker.wait()
    assert await said(conditions, "true", b"1", b"2") == [YES, YES]


async def until_busy(worker: Callable[[], asyncio.subprocess.Process | None]) -> None:
    """Until it works on a question that does not end: it has used more time than its start costs."""
    async with asyncio.timeout(60):
        while (found := worker()) is None or _cpu_s(found.pid) < 1:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def test_a_worker_that_crashes_in_the_middle_costs_one_answer() -> None:
    async with Conditions(JqLimits(time_ms=30_000)) as conditions:
        asked = asyncio.create_task(
            said(conditions, "if . == 2 then [range(1e12)] else true end", *b"1 2 3".split())
        )
        await until_busy(lambda: conditions._jq._worker._process)
        worker = conditions._jq._worker._process
        assert worker is not None
        worker.kill()
        assert await asked == [YES, UNANSWERED, YES]


async def test_a_worker_that_only_waits_is_ended_by_the_clock(
    conditions: Conditions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(JqLimits, "clock_s", 0.5)
    assert await said(conditions, "true", b"1") == [YES]
    worker = conditions._jq._worker._process
    assert worker is not None
    os.kill(worker.pid, 19)  # SIGSTOP: it uses no CPU time at all
    assert await said(conditions, "true", b"1", b"2") == [UNANSWERED, YES]


async def test_a_cancelled_question_leaves_nothing_out_of_step(conditions: Conditions) -> None:
    async with Conditions(JqLimits(time_ms=60_000)) as patient:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await said(patient, ENDLESS, b"1")
        assert await said(patient, ". == 2", b"1", b"2") == [NO, YES]


async def test_two_who_ask_at_once_get_their_own_answers(conditions: Conditions) -> None:
    assert await said(conditions, "true", b"1") == [YES]
    batches = await asyncio.gather(
        *(said(conditions, f". == {n}", *(b"%d" % m for m in range(5))) for n in range(5))
    )
    assert batches == [[YES if m == n else NO for m in range(5)] for n in range(5)]


@pytest.mark.parametrize("program", ["env | length", "$ENV | length", "env | keys | length"])
async def test_it_sees_nothing_of_our_environment(
    conditions: Conditions, program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DLQ_URL", "amqp://user:secret@host/")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/somewhere")
    assert await said(conditions, f"({program}) == 1", b"1") == [YES]
    assert await said(conditions, 'env == {"HOME": "/nonexistent"}', b"1") == [YES]


async def test_a_program_that_does_not_compile_says_nothing(conditions: Conditions) -> None:
    assert await said(conditions, "1 +", b"1") == [UNANSWERED]
    assert conditions.restarts == 0


async def test_without_questions_no_process_is_started(conditions: Conditions) -> None:
    assert await conditions.answer([Question(b"1", ()), Question(b"2", ())]) == [{}, {}]
    assert await conditions.answer([]) == []
    assert conditions._jq._worker._process is None


async def test_without_jq_there_is_an_error_and_not_an_answer(
    conditions: Conditions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_process, "command", lambda *_: ["/bin/false"])
    with pytest.raises(JqUnavailable, match="is the package jq installed"):
        await said(conditions, "true", b"1")
    with pytest.raises(JqUnavailable):
        refusals(["true"])
    monkeypatch.setattr(worker_process, "command", lambda *_: ["/nonexistent"])
    with pytest.raises(JqUnavailable):
        await said(conditions, "true", b"1")


# -- programs that break their bounds again and again ------------------------------------------------------
async def test_a_program_that_fails_again_and_again_is_switched_off_and_its_neighbours_are_not() -> None:
    told: list[ServiceEvent] = []
    good = JqCondition(program=". > 0")
    async with Conditions(JqLimits(time_ms=100), told.append) as conditions:
        bad = JqCondition(program=ENDLESS)
        answers = await conditions.answer([Question(b"1", (good, bad)) for _ in range(100)])
        assert answers == [{good: YES, bad: UNANSWERED}] * 100
        assert conditions.restarts == FAILURES
        (off,) = told
        assert isinstance(off, Trouble)
        assert off.what == f"condition:{ENDLESS}"
        assert await said(conditions, ENDLESS, b"1", b"2") == [UNANSWERED, UNANSWERED]
        assert conditions.restarts == FAILURES
        assert told == [off]


async def test_it_is_tried_once_after_a_pause_and_the_rest_of_the_batch_follows_the_trial(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(switch, "PAUSE_S", 0.3)
    told: list[ServiceEvent] = []
    program = "if . == 0 then [range(1e12)] else true end"
    async with Conditions(JqLimits(time_ms=100), told.append) as conditions:
        assert await said(conditions, program, *[b"0"] * 10) == [UNANSWERED] * 10
        assert await said(conditions, program, b"1") == [UNANSWERED], "it is off, whatever the body"
        await asyncio.sleep(0.4)
        assert await said(conditions, program, b"0", b"1", b"1") == [UNANSWERED] * 3, "the trial failed"
        assert conditions.restarts == FAILURES + 1
        await asyncio.sleep(0.8)
        assert await said(conditions, program, b"1", b"1", b"1") == [YES] * 3, "the trial went well"
        assert [type(event) for event in told] == [Trouble, Trouble, Recovered]


async def test_a_failure_among_many_that_work_switches_nothing_off() -> None:
    told: list[ServiceEvent] = []
    program = "if . == 0 then [range(1e12)] else true end"
    async with Conditions(JqLimits(time_ms=100), told.append) as conditions:
        bodies = [b"0" if n % 20 == 0 else b"1" for n in range(200)]
        answers = await said(conditions, program, *bodies)
        assert answers == [UNANSWERED if body == b"0" else YES for body in bodies]
        assert not told


def test_programs_that_cannot_be_used_are_known_beforehand() -> None:
    said = refusals([".a", "1 +", ".a) | (.b", 'include "x"; .', "nope", "true # why", ENDLESS])
    assert [text is None for text in said] == [True, False, False, False, False, True, True]
    assert "unexpected end of file" in str(said[1])
    assert "nope/0 is not defined" in str(said[4])
    assert "line 1" in str(said[1])
