"""Log lines: one for what is worth one, readable by machines, without secrets, and nobody waits for them.

About `service.telling.logs`, `service.telling.log_lines`, `service.telling.service_events`.
"""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from deadletter.core.deciding.letter_fate import LetterFate
from deadletter.core.deciding.states import Step
from deadletter.core.guards.gate import GateState
from deadletter.service.telling import logs as module
from deadletter.service.telling.log_lines import Lines, safe
from deadletter.service.telling.logs import Format, Level, Logs, configure
from deadletter.service.telling.service_events import (
    BudgetSeen,
    Confirmed,
    Decided,
    FindingGone,
    FindingNamed,
    GateChanged,
    GroupingSeen,
    GrowthFound,
    HousekeepingDone,
    Hub,
    Late,
    LeaseChanged,
    LettersStored,
    LifeChanged,
    PoliciesChanged,
    QueueGone,
    QueuesAlike,
    QueueSeen,
    Recovered,
    ReplayChanged,
    ReplayCounted,
    ReplaysSeen,
    ServiceEvent,
    Stage,
    SweepEnded,
    Trouble,
)

BROKER = "amqp://svc@rabbit:5672/%2F"


@contextmanager
def logs(stream: io.StringIO, *, format: Format = "json", level: Level = "debug") -> Iterator[Logs]:  # noqa: A002
    made = configure(format=format, level=level, stream=stream, instance="i1", broker=BROKER)
    try:
        yield made
    finally:
        made.close()


def said(*events: ServiceEvent, level: Level = "debug") -> list[dict[str, Any]]:
    stream = io.StringIO()
    with logs(stream, level=level) as made:
        for event in events:
            made.listener(event)
    return [json.loads(line) for line in stream.getvalue().split("\n")[:-1]]


def texts(*events: ServiceEvent) -> str:
    stream = io.StringIO()
    with logs(stream, format="text") as made:
        for event in events:
            made.listener(event)
    return stream.getvalue()


def fate(
    step: Step = Step.DELAYED, *, source: str = "x.dlq", origin: str = "x", cause: str = ""
) -> LetterFate:
    return LetterFate(step=step, source=source, origin=origin, policy="p", reason="rejected", cause=cause)


ONE_OF_EACH: list[tuple[ServiceEvent, str | None]] = [
    (Decided(letter_id="1", fate=fate(), why="first try"), "debug"),
    (Late(seconds=(1.0,)), None),
    (QueueSeen(queue="q", watched=True, depth=1, consumers=0), None),
    (QueuesAlike(queues=(QueueSeen(queue="q", watched=True, depth=1, consumers=0),)), None),
    (BudgetSeen(policy="", used=1, limit=2), None),
    (QueueGone(queue="q"), "info"),
    (GateChanged(gate="g", origin="x", state=GateState.CLOSED, guard="depth", why="full"), "warning"),
    (GateChanged(gate="g", origin="x", state=GateState.OPEN, guard="depth", why="room"), "info"),
    (LeaseChanged(name="l", held=True), "info"),
    (HousekeepingDone(delays=3, held=2, ways=1), "info"),
    (LettersStored(new=1, copies=1, again=0, new_groups=0, reopened=0, seconds=0.1), "info"),
    (GroupingSeen(digest="d", behind=True), "info"),
    (GroupingSeen(digest="d", behind=False), "info"),
    (ReplayChanged(replay=1, state="running"), "info"),
    (ReplayChanged(replay=1, state="stopped", why="too many came back"), "warning"),
    (ReplayCounted(what="sent", letters=3), None),
    (ReplaysSeen(going=1, waiting=0), None),
    (SweepEnded(dlq="q", seen=2, moved=2, left=0, failed=0, seconds=0.1, why="timer"), "info"),
    (SweepEnded(dlq="q", seen=2, moved=1, left=0, failed=1, seconds=0.1, why="timer"), "warning"),
    (GrowthFound(origin="x", letter_id="1", copies=9, why="fanout"), "error"),
    (FindingNamed(rule="shared-dlx", subject="x", why="fanout"), "warning"),
    (FindingGone(rule="shared-dlx", subject="x"), "info"),
    (Trouble(what="store", why="down", seconds=2.0), "warning"),
    (Recovered(what="store"), "info"),
    (PoliciesChanged(count=1, where="file"), "info"),
    (LifeChanged(stage=Stage.READY), "info"),
    (Confirmed(fates={fate(): 3}), "info"),
    (Confirmed(fates={fate(Step.FAILED): 3}), "warning"),
]


@pytest.mark.parametrize(("event", "level"), ONE_OF_EACH, ids=lambda v: type(v).__name__)
def test_each_fact_has_one_line_of_its_level(event: ServiceEvent, level: str | None) -> None:
    assert [line["level"] for line in said(event)] == ([] if level is None else [level])


def test_every_kind_of_fact_is_tried_above() -> None:
    assert {type(event) for event, _ in ONE_OF_EACH} == set(ServiceEvent.__args__)


def test_a_line_says_when_who_and_where() -> None:
    (line,) = said(LifeChanged(stage=Stage.READY))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["at"])
    assert (line["event"], line["level"], line["instance"], line["broker"]) == ("ready", "info", "i1", BROKER)


def test_a_decision_tells_all_there_is_to_know() -> None:
    decided = Decided(
        letter_id="abc",
        fate=LetterFate(
            step=Step.DELAYED, source="x.dlq", origin="x", policy="p", reason="rejected", cause="c",
            delay_ms=0, attempt=0,
        ),
        why="1 of 3",
    )  # fmt: skip
    (line,) = said(decided)
    for key in ("at", "level", "instance", "broker"):
        del line[key]
    assert line == {
        "event": "decided: delayed", "letter": "abc", "queue": "x.dlq", "origin": "x", "attempt": 0,
        "delay_ms": 0, "policy": "p", "reason": "rejected", "cause": "c", "why": "1 of 3",
    }  # fmt: skip


def test_levels_hide_what_is_below_them() -> None:
    events = [event for event, _ in ONE_OF_EACH]
    assert {line["level"] for line in said(*events, level="info")} == {"info", "warning", "error"}
    assert {line["level"] for line in said(*events, level="warning")} == {"warning", "error"}
    assert {line["level"] for line in said(*events, level="error")} == {"error"}


async def test_bunches_become_one_line_for_each_queue_and_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[Callable[[], None]] = []
    monkeypatch.setattr(module, "_on_the_loop", lambda _seconds, work: waits.append(work))
    stream = io.StringIO()
    with logs(stream) as made:
        for number in range(100):
            made.listener(
                Confirmed(fates={fate(origin=f"o{number % 7}", cause="a"): 2, fate(Step.PARKED): 1})
            )
            made.listener(Confirmed(fates={fate(source="y.dlq", cause="b"): 1}))
        assert len(waits) == 1, "one timer for all of them"
        waits.pop()()
        made.listener(Confirmed(fates={fate(source="y.dlq"): 5}))
        assert len(waits) == 1
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(line["event"], line["queue"], line["letters"]) for line in lines] == [
        ("letters delayed", "x.dlq", 200),
        ("letters parked", "x.dlq", 100),
        ("letters delayed", "y.dlq", 100),
        ("letters delayed", "y.dlq", 5),  # the end says what is left
    ]
    assert lines[0]["causes"] == "a"
    assert sum(lines[0]["origins"].values()) == 200
    assert len(lines[0]["origins"]) == 6, "five, and the rest"


async def test_the_loop_says_bunches_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MERGE_S", 0.01)
    stream = io.StringIO()
    with logs(stream) as made:
        made.listener(Confirmed(fates={fate(): 1}))
        made.listener(Confirmed(fates={fate(): 1}))
        assert stream.getvalue() == ""
        while not stream.getvalue():  # noqa: ASYNC110 -- it is another thread that writes
            await asyncio.sleep(0.01)
    assert stream.getvalue().count("\n") == 1
    assert '"letters": 2' in stream.getvalue()


def test_what_was_merged_is_said_before_the_end() -> None:
    lines = said(Confirmed(fates={fate(): 1}), LifeChanged(stage=Stage.STOPPED))
    assert [line["event"] for line in lines] == ["letters delayed", "stopped"]


def test_a_finding_is_named_once_per_subject() -> None:
    found = FindingNamed(rule="r", subject="x", why="w")
    lines = said(found, found, FindingNamed(rule="r", subject="y", why="w"), found)
    assert [line["subject"] for line in lines] == ["x", "y"]


def test_trouble_that_lasts_is_not_a_flood() -> None:
    now = 0.0
    stream = io.StringIO()
    with logs(stream) as made:
        listener = module.LogListener(made.listener.log, level="info", clock=lambda: now)
        for _ in range(130):  # a try each second
            listener(Trouble(what="broker", why="refused"))
            listener(Trouble(what="store", why=f"refused at {now}"))
            now += 1.0
        listener(Recovered(what="broker"))
        listener(Trouble(what="broker", why="refused"))
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    broker = [line["event"] for line in lines if line["what"] == "broker"]
    assert broker == [*["does not work"] * 3, "works again", "does not work"]
    assert len([1 for line in lines if line["what"] == "store"]) == 26, "a reason that changes: every 5 s"


def test_many_rows_that_make_no_sense_are_not_a_flood() -> None:
    lines = said(PoliciesChanged(count=1, where="table", problems=tuple(f"row {n}" for n in range(500))))
    assert len(lines) == 22
    assert lines[-1]["count"] == 480


NASTY = 'a\nb\r\x1b[31mc\x85d\u2028e\u202ef"g\\h\ud800\x00=i'


@pytest.mark.parametrize(
    "event",
    [
        QueueGone(queue=NASTY),
        GateChanged(gate=NASTY, origin=NASTY, state=GateState.CLOSED, guard="depth", why=NASTY),
        Confirmed(fates={fate(source=NASTY, origin=NASTY): 1, fate(source=NASTY, origin="y"): 1}),
        LifeChanged(stage=Stage.READY, why=NASTY),
    ],
)
def test_no_name_breaks_a_line(event: ServiceEvent) -> None:
    stream = io.StringIO()
    with logs(stream) as made:
        made.listener(event)
    text = stream.getvalue()
    assert len(text.splitlines()) == 1  # splitlines knows more ends of line than \n
    assert NASTY in json.loads(text).values() or NASTY in json.loads(text)["origins"]
    people = texts(event)
    assert len(people.splitlines()) == 1
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u202e]", people)


def test_a_value_without_end_is_cut() -> None:
    (line,) = said(QueueGone(queue="x" * 100_000))
    assert len(line["queue"]) == 2000


@pytest.mark.parametrize(
    "text",
    [
        "cannot reach amqp://svc:hunter2@rabbit:5672/%2F, trying again",
        "cannot reach amqps://svc:hun@ter2@rabbit",
        "one of amqp://a:hunter2@h1,amqp://b:hunter2@h2",
        "postgresql+asyncpg://u:hunter2@db/x?sslpassword=hunter2&x=1",
        "postgresql://db/x?password=hunter2",
        "authorization: Bearer hunter2",
    ],
)
def test_no_line_holds_a_password(text: str) -> None:
    assert "hunter2" not in safe(text)
    events: list[ServiceEvent] = [
        Trouble(what="broker", why=text),
        Recovered(what="store", why=text),
        LifeChanged(stage=Stage.READY, why=text),
        PoliciesChanged(count=1, where=text, problems=(text,)),
        Decided(letter_id="1", fate=fate(), why=text),
    ]
    assert "hunter2" not in json.dumps(said(*events))
    assert "hunter2" not in texts(*events)
    stream = io.StringIO()
    with logs(stream) as made:
        logging.getLogger("some.library").error("%s", text)
        made.broken(print, ValueError(text))
    assert stream.getvalue().count("\n") == 2
    assert "hunter2" not in stream.getvalue()


def test_what_is_no_secret_stays() -> None:
    for text in ("amqp://svc@rabbit:5672/%2F", "http://rabbit:15672/api/queues", "a:b@c", "routing_key=a.b"):
        assert safe(text) == text


def test_an_alert_channel_is_a_secret_as_a_whole() -> None:
    channel = "https://hooks.example/services/T0/hunter2"
    lines = said(
        Trouble(what=f"alert:{channel}", why=f"POST {channel}: 404"),
        Recovered(what=f"alert:{channel}", why=channel),
    )
    assert len(lines) == 2
    assert "hunter2" not in json.dumps(lines)


def test_libraries_are_heard_from_warnings_on_and_their_traces_are_one_line() -> None:
    stream = io.StringIO()
    with logs(stream) as made:
        library = logging.getLogger("uvicorn.error")
        library.info("Started server process")
        try:
            raise ValueError("oh\nno")
        except ValueError:
            library.exception("it failed")
    (line,) = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert (line["level"], line["event"], line["library"]) == ("error", "it failed", "uvicorn.error")
    assert line["trace"].endswith("ValueError: oh\nno")
    assert made.lines.dropped == 0
    assert not any(type(h).__name__ == "_Bridge" for h in logging.getLogger().handlers), "the end is the end"


def test_a_broken_listener_is_said_once_and_the_others_hear() -> None:
    stream = io.StringIO()
    with logs(stream) as made:
        hub = Hub(on_broken=made.broken)

        def broken(_event: ServiceEvent) -> None:
            raise RuntimeError("no")

        hub.listen(broken)
        hub.listen(made.listener)
        hub.emit(QueueGone(queue="a"))
        hub.emit(QueueGone(queue="b"))
    assert [json.loads(line)["level"] for line in stream.getvalue().splitlines()] == ["error", "info", "info"]


def test_a_full_pipe_stalls_nobody_and_the_oldest_are_given_up() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "r") as reader, os.fdopen(writing, "w") as writer:
        lines = Lines(writer, on_drop=lambda number: f"lost {number}", chars=100_000)
        for number in range(5000):
            lines.write(f"{number:04d}".ljust(100, "."))  # five times what pipe and buffer hold
        assert 2000 < lines.dropped < 4900
        said: list[str] = []
        thread = threading.Thread(target=lambda: said.extend(iter(reader.readline, "end\n")))
        thread.start()
        lines.write("end")
        thread.join(30)
        lines.close()
    numbers = [int(line[:4]) for line in said if line[0].isdigit()]
    losses = [int(line.split()[1]) for line in said if line.startswith("lost")]
    assert numbers == sorted(numbers)
    assert numbers[-1] == 4999, "the newest are there"
    assert len(numbers) + sum(losses) == 5000, "what is missing is said"
    assert sum(losses) == lines.dropped


def test_a_pipe_that_somebody_made_non_blocking_gets_every_line() -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with os.fdopen(reading, "r") as reader, os.fdopen(writing, "w") as writer:
        lines = Lines(writer, on_drop=str)
        for number in range(3000):
            lines.write(str(number).ljust(100, "."))
        lines.write("end")
        assert len(list(iter(reader.readline, "end\n"))) == 3000
        lines.close()
        assert lines.dropped == 0


def test_a_stream_that_is_gone_is_counted_and_kills_nobody() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as writer:
        lines = Lines(writer, on_drop=str)
        lines.write("a")
        lines.close()
        lines.write("b")
        assert lines.dropped == 2


def test_a_process_whose_stderr_nobody_reads_ends_all_the_same() -> None:
    program = """
import sys
from deadletter.service.telling.service_events import QueueGone
from deadletter.service.telling.logs import configure
logs = configure(format="json", level="info", stream=sys.stderr, instance="i", broker="b")
for number in range(20000):
    logs.listener(QueueGone(queue="x" * 200))
logs.lines.close(within_s=0.2)
print(logs.lines.dropped > 0)
"""
    reading, writing = os.pipe()
    try:
        done = subprocess.run(
            [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=writing, timeout=60, check=False
        )
    finally:
        os.close(writing)
        os.close(reading)
    assert (done.returncode, done.stdout) == (0, b"True\n")
