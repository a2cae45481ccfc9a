"""The numbers: what each fact does to them, that they are bounded, and that Prometheus can read them.

About `service.telling.service_metrics`, `service.telling.metric_list`, `service.telling.metric_series`,
`service.telling.metric_snapshot`.
"""

from __future__ import annotations

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text
from tests.paths import ROOT

from deadletter.core.deciding.letter_fate import LetterFate
from deadletter.core.deciding.states import Step
from deadletter.core.guards.gate import GateState
from deadletter.service.telling import metric_series
from deadletter.service.telling.metric_list import METRICS
from deadletter.service.telling.metric_series import LABEL_SETS
from deadletter.service.telling.service_events import (
    BudgetSeen,
    Confirmed,
    FindingNamed,
    GateChanged,
    GrowthFound,
    Late,
    LeaseChanged,
    LifeChanged,
    PoliciesChanged,
    QueueGone,
    QueueSeen,
    Recovered,
    ServiceEvent,
    Stage,
    SweepEnded,
    Trouble,
)
from deadletter.service.telling.service_metrics import Metrics

DOCS = (ROOT / "docs/metrics.md").read_text()
ORDER = {metric.name: metric.labels for metric in METRICS if metric.labels}
OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def told(metrics: Metrics) -> dict[tuple[str, tuple[str, ...]], float]:
    """Every sample by its name and its label values, as a scrape in the plain format sees it."""
    text, _ = metrics.snapshot().render()
    found: dict[tuple[str, tuple[str, ...]], float] = {}
    for family in parse_text(text.decode()):
        for sample in family.samples:
            labels = ORDER.get(sample.name, tuple(sample.labels))
            key = (sample.name.removeprefix("deadletter_"), tuple(sample.labels[name] for name in labels))
            assert key not in found, "a series must be there once"
            found[key] = sample.value
    return found


def heard(*events: ServiceEvent) -> dict[tuple[str, tuple[str, ...]], float]:
    metrics = Metrics()
    for event in events:
        metrics(event)
    return told(metrics)


def fate(step: Step = Step.DELAYED, *, source: str = "x.dlq", delay_ms: int | None = None) -> LetterFate:
    return LetterFate(step=step, source=source, origin="x", policy="p", reason="rejected", delay_ms=delay_ms)


def everything() -> list[ServiceEvent]:
    return [
        Confirmed(fates={fate(delay_ms=5000): 3, fate(Step.PARKED): 1}),
        Late(seconds=(0.004, 0.2)),
        QueueSeen(queue="x.dlq", watched=True, depth=7, consumers=2, growth_per_s=-1.5, oldest_s=12.0),
        QueueSeen(queue="deadletter.held.x", watched=False, depth=4, consumers=0),
        GateChanged(gate="x", origin="x", state=GateState.CLOSED, guard="breaker", why="all die"),
        BudgetSeen(policy="", used=3, limit=60),
        LeaseChanged(name="sweep:x.dlq", held=True),
        SweepEnded(dlq="x.dlq", seen=3, moved=3, left=0, failed=0, seconds=0.7, why="timer"),
        GrowthFound(origin="x", letter_id="1", copies=9, why="fanout"),
        FindingNamed(rule="shared-dlx", subject="x", why="fanout"),
        Trouble(what="store", why="down"),
        PoliciesChanged(count=4, where="file", problems=("row 3",)),
        LifeChanged(stage=Stage.READY),
    ]


def test_each_fact_has_its_number() -> None:
    found = heard(*everything())
    assert found["letters_total", ("delayed", "x.dlq", "x", "rejected", "p", "5000")] == 3
    assert found["letters_total", ("parked", "x.dlq", "x", "rejected", "p", "")] == 1
    assert found["retry_delay_seconds_bucket", ("1.0",)] == 0
    assert found["retry_delay_seconds_bucket", ("5.0",)] == 3
    assert found["retry_delay_seconds_sum", ()] == 15
    assert found["release_lateness_seconds_bucket", ("0.005",)] == 1
    assert found["release_lateness_seconds_count", ()] == 2
    assert found["queue_letters", ("x.dlq",)] == 7
    assert found["queue_consumers", ("x.dlq",)] == 2
    assert found["queue_growth_per_second", ("x.dlq",)] == -1.5
    assert found["queue_oldest_seconds", ("x.dlq",)] == 12
    assert found["held_letters", ("deadletter.held.x",)] == 4
    assert ("held_letters", ("x.dlq",)) not in found
    assert found["gate_state", ("x", "breaker")] == 3
    assert (found["budget_used", ("",)], found["budget_limit", ("",)]) == (3, 60)
    assert found["lease_held", ("sweep:x.dlq",)] == 1
    assert found["sweeps_total", ("x.dlq", "timer")] == 1
    assert found["sweep_seconds_bucket", ("0.5",)] == 0
    assert found["sweep_seconds_bucket", ("1.0",)] == 1
    assert found["growth_alarms_total", ("x",)] == 1
    assert found["findings", ("shared-dlx", "x")] == 1
    assert found["trouble", ("store",)] == 1
    assert (found["policies", ()], found["policies_ignored", ()]) == (4, 1)
    assert (found["up", ("ready",)], found["up", ("starting",)]) == (1, 0)


def test_letters_add_up_over_bunches_and_fates_that_say_the_same() -> None:
    found = heard(Confirmed(fates={fate(): 2, fate(): 3}), Confirmed(fates={fate(): 5}))
    assert found["letters_total", ("delayed", "x.dlq", "x", "rejected", "p", "")] == 10


def test_what_is_over_is_told_as_over() -> None:
    found = heard(
        *everything(),
        Recovered(what="store"),
        LeaseChanged(name="sweep:x.dlq", held=False),
        GateChanged(gate="x", origin="x", state=GateState.OPEN, guard="breaker", why="it works"),
        QueueSeen(queue="x.dlq", watched=True, depth=0, consumers=2),
        LifeChanged(stage=Stage.STOPPING),
    )
    assert found["trouble", ("store",)] == 0
    assert found["lease_held", ("sweep:x.dlq",)] == 0
    assert found["gate_state", ("x", "breaker")] == 0
    assert ("queue_oldest_seconds", ("x.dlq",)) not in found, "an empty queue has no oldest letter"
    assert (found["up", ("ready",)], found["up", ("stopping",)]) == (0, 1)


def test_a_queue_that_is_gone_disappears_and_its_letters_stay_counted() -> None:
    found = heard(*everything(), QueueGone(queue="x.dlq"), QueueGone(queue="deadletter.held.x"))
    assert not [key for key in found if "x.dlq" in key[1] and key[0] != "lease_held"]
    assert not [key for key in found if "deadletter.held.x" in key[1]]
    assert found["letters_total", ("delayed", *["other"] * 5)] == 3
    assert found["letters_total", ("parked", *["other"] * 5)] == 1
    assert found["sweeps_total", ("other", "other")] == 1


def test_counters_beyond_the_bound_are_one_series_and_none_is_lost() -> None:
    metrics = Metrics()
    for number in range(LABEL_SETS + 50):
        metrics(Confirmed(fates={fate(source=f"{number}.dlq"): 2}))
    metrics(Confirmed(fates={fate(Step.PARKED, source="last.dlq"): 1, fate(source="0.dlq"): 1}))
    found = told(metrics)
    letters = {labels: value for (name, labels), value in found.items() if name == "letters_total"}
    assert len(letters) == LABEL_SETS + 2
    assert letters["delayed", *["other"] * 5] == 100
    assert letters["parked", *["other"] * 5] == 1
    assert sum(letters.values()) == 2 * (LABEL_SETS + 50) + 2
    assert found["label_overflow_total", ("deadletter_letters_total",)] == 51


def test_gauges_beyond_the_bound_are_one_series_until_there_is_room() -> None:
    metrics = Metrics()
    for number in range(LABEL_SETS + 3):
        metrics(QueueSeen(queue=f"q{number}", watched=True, depth=1, consumers=0, oldest_s=float(number)))
    found = told(metrics)
    assert len([1 for name, _ in found if name == "queue_letters"]) == LABEL_SETS + 1
    assert found["queue_letters", ("other",)] == 3
    assert found["queue_oldest_seconds", ("other",)] == LABEL_SETS + 2, "the oldest of them, not their sum"
    for number in (0, 1, LABEL_SETS):
        metrics(QueueGone(queue=f"q{number}"))
    for number in (LABEL_SETS + 1, LABEL_SETS + 2):
        metrics(QueueSeen(queue=f"q{number}", watched=True, depth=1, consumers=0))
    found = told(metrics)
    assert ("queue_letters", ("other",)) not in found
    assert found["queue_letters", (f"q{LABEL_SETS + 2}",)] == 1


def test_a_queue_called_other_is_not_told_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metric_series, "LABEL_SETS", 1)
    found = heard(
        QueueSeen(queue="other", watched=True, depth=1, consumers=0),
        QueueSeen(queue="b", watched=True, depth=2, consumers=0),
    )
    assert found["queue_letters", ("other",)] == 3


NASTY = 'a"b\\c\nd\re\x00\x85\u2028ü\ud800{},=#'


@pytest.mark.parametrize("accept", ["", OPENMETRICS, "text/html", "text/plain; version=0.0.4"])
def test_prometheus_own_parsers_read_it_whatever_queues_are_called(accept: str) -> None:
    metrics = Metrics()
    for event in everything():
        metrics(event)
    metrics(Confirmed(fates={LetterFate(step=Step.LEFT, source=NASTY, origin="x" * 5000): 1}))
    text, content_type = metrics.snapshot().render(accept)
    openmetrics = accept == OPENMETRICS
    assert content_type.startswith("application/openmetrics-text" if openmetrics else "text/plain")
    families = list((parse_openmetrics if openmetrics else parse_text)(text.decode()))
    (left,) = (
        sample
        for family in families
        for sample in family.samples
        if sample.name == "deadletter_letters_total" and sample.labels["outcome"] == "left"
    )
    assert left.labels["queue"] == NASTY.replace("\ud800", "\\ud800")
    assert len(left.labels["origin"]) == 1000


def test_the_collector_yields_what_the_table_says_and_no_more() -> None:
    text, _ = Metrics().snapshot().render(OPENMETRICS)
    yielded = {
        f"{family.name}{'_total' if family.type == 'counter' else ''}"
        f"{'_info' if family.type == 'info' else ''}": (family.type, family.documentation)
        for family in parse_openmetrics(text.decode())  # type: ignore[no-untyped-call]
    }
    assert yielded == {metric.name: (metric.type, metric.help) for metric in METRICS}


def test_the_page_names_every_metric_with_its_labels_and_no_other() -> None:
    rows = [line.split(" | ") for line in DOCS.splitlines() if line.startswith("| `deadletter_")]
    assert [[cell.strip("| ") for cell in row] for row in rows] == [
        [f"`{m.name}`", m.type, ", ".join(f"`{label}`" for label in m.labels) or "–", m.help] for m in METRICS
    ]


def test_the_service_says_how_many_log_lines_it_gave_up() -> None:
    assert told(Metrics(lines_dropped=lambda: 12))["log_lines_dropped_total", ()] == 12


def test_a_snapshot_does_not_change_with_the_numbers() -> None:
    metrics = Metrics()
    metrics(Confirmed(fates={fate(delay_ms=1): 1}))
    snapshot = metrics.snapshot()
    before = snapshot.render()
    for event in everything():
        metrics(event)
    assert snapshot.render() == before != metrics.snapshot().render()


def test_no_label_holds_the_key_to_an_alert_channel() -> None:
    found = heard(Trouble(what="alert:https://hooks.example/hunter2", why="404"))
    assert found["trouble", ("alert:https://hooks.example/***",)] == 1
