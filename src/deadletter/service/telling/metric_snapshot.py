"""The numbers of one moment, put into words for Prometheus: in any thread, and by nobody's leave."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, assert_never

from prometheus_client.core import (
    CollectorRegistry,
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from deadletter import __version__
from deadletter.service.telling.metric_list import METRICS, Definition, Labels

_LABEL_CHARS: Final = 1_000


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Snapshot(Collector):
    """All numbers of one moment."""

    series: Mapping[Definition, Mapping[Labels, float]]
    histograms: Mapping[Definition, tuple[tuple[int, ...], float]] = field(default_factory=dict)

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """The text and its content type: OpenMetrics for who accepts it, else the plain format."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        encode, content_type = choose_encoder(accept)
        return encode(registry), content_type

    def collect(self) -> Iterator[Metric]:
        for metric in METRICS:
            match metric.type:
                case "counter" | "gauge":
                    kind = CounterMetricFamily if metric.type == "counter" else GaugeMetricFamily
                    family = kind(metric.name, metric.help, labels=metric.labels)
                    for labels, value in _cleaned(self.series[metric]).items():
                        family.add_metric(labels, value)
                    yield family
                case "histogram":
                    counts, total = self.histograms[metric]
                    histogram = HistogramMetricFamily(metric.name, metric.help, labels=())
                    histogram.add_metric((), _cumulative(metric.buckets, counts), total)
                    yield histogram
                case "info":
                    info = InfoMetricFamily(metric.name.removesuffix("_info"), metric.help, labels=())
                    info.add_metric((), {"version": __version__, "python": platform.python_version()})
                    yield info
                case _:
                    assert_never(metric.type)


def _cleaned(series: Mapping[Labels, float]) -> dict[Labels, float]:
    """Labels that can be written as UTF-8 and have an end; two that become one are one series."""
    found: dict[Labels, float] = {}
    for labels, value in series.items():
        key = tuple(map(_label, labels))
        found[key] = found.get(key, 0) + value
    return found


def _label(text: str) -> str:
    if text.isascii() and len(text) <= _LABEL_CHARS:
        return text
    return text[:_LABEL_CHARS].encode("utf-8", "backslashreplace").decode()


def _cumulative(bounds: tuple[float, ...], counts: tuple[int, ...]) -> list[tuple[str, float]]:
    total = 0
    told: list[tuple[str, float]] = []
    for bound, number in zip((*map(str, bounds), "+Inf"), counts, strict=True):
        total += number
        told.append((bound, total))
    return told
