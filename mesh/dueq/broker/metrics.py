"""The Prometheus page: the core's counters, and gauges that the loop publishes once a second."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from dueq.core.metrics import CoreMetrics, Histogram

TOPICS_MAX = 200
OTHER = "other"


class MetricsPage(Collector):
    """Turns what is counted into metrics whenever the page is asked for.

    Attributes:
        gauges: the latest published gauges (`BrokerCore.gauges`).
        process: further numbers of the process: name -> value.
    """

    def __init__(self, core: CoreMetrics) -> None:
        self._core = core
        self.gauges: dict[str, Any] = {}
        self.process: dict[str, float] = {}
        self._server: WSGIServer | None = None

    def serve(self, address: str) -> None:
        """Begin to answer on `ADDRESS:PORT`.

        Raises:
            OSError: the port is taken.
        """
        host, _, port = address.rpartition(":")
        registry = CollectorRegistry()
        registry.register(self)
        ProcessCollector(registry=registry)
        self._server, _ = start_http_server(int(port), host or "127.0.0.1", registry)

    def close(self) -> None:
        """Stop answering."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def collect(self) -> Iterable[Metric]:
        """Yield every metric."""
        core = self._core
        known = self._topics()
        messages = CounterMetricFamily(
            "dueq_messages", "Messages by operation", labels=["operation", "topic"]
        )
        for (operation, topic), count in _summed(dict(core.messages), known).items():
            messages.add_metric([operation, topic], count)
        yield messages
        redelivered = CounterMetricFamily("dueq_redeliveries", "Pushes after the first", labels=["topic"])
        for topic, count in _by_topic(dict(core.redelivered), known).items():
            redelivered.add_metric([topic], count)
        yield redelivered
        errors = CounterMetricFamily("dueq_errors", "Refusals and bad frames", labels=["code"])
        for code, count in dict(core.errors).items():
            errors.add_metric([code], count)
        yield errors
        lateness = HistogramMetricFamily(
            "dueq_lateness_seconds", "From the due instant to the push (first deliveries)", labels=["topic"]
        )
        for topic, histogram in list(core.lateness.items())[:TOPICS_MAX]:
            lateness.add_metric([topic], _buckets(histogram), histogram.total_us / 1e6)
        yield lateness
        commit = HistogramMetricFamily("dueq_commit_seconds", "From append to commit, per record")
        commit.add_metric([], _buckets(core.commit), core.commit.total_us / 1e6)
        yield commit
        yield from self._counted()
        yield from self._gauges(known)

    def _topics(self) -> set[str]:
        """The topics that get labels of their own: those with the most messages."""
        weights: dict[str, int] = defaultdict(int)
        for partition in self.gauges.get("partitions", []):
            weights[partition["topic"]] += partition["scheduled"] + partition["leased"]
        for (_, topic), count in dict(self._core.messages).items():
            weights[topic] += count
        return set(sorted(weights, key=lambda topic: -weights[topic])[:TOPICS_MAX])

    def _counted(self) -> Iterable[Metric]:
        yield CounterMetricFamily("dueq_elections", "Leaderships begun", value=self._core.elections)
        yield CounterMetricFamily("dueq_pauses", "Pauses of the process", value=self._core.pauses)
        for name, value in list(self.process.items()):
            yield CounterMetricFamily(f"dueq_{name}", f"Process: {name.replace('_', ' ')}", value=value)

    def _gauges(self, known: set[str]) -> Iterable[Metric]:
        gauges = self.gauges
        states = GaugeMetricFamily(
            "dueq_messages_now", "Messages led here, by state", labels=["state", "topic"]
        )
        isr = GaugeMetricFamily("dueq_isr_size", "Replicas in sync", labels=["topic", "partition"])
        counts: dict[tuple[str, str], int] = defaultdict(int)
        for partition in gauges.get("partitions", []):
            if partition["role"] != "leader":
                continue
            topic = partition["topic"] if partition["topic"] in known else OTHER
            for state in ("scheduled", "ready", "leased"):
                counts[state, topic] += partition[state]
            if topic != OTHER:
                isr.add_metric([topic, str(partition["index"])], len(partition["isr"]))
        for (state, topic), count in counts.items():
            states.add_metric([state, topic], count)
        yield states
        yield isr
        offsets = GaugeMetricFamily(
            "dueq_clock_offset_seconds", "A peer's clock minus this one's", labels=["peer"]
        )
        for peer, offset_us in gauges.get("clock_offset_us", {}).items():
            offsets.add_metric([peer], offset_us / 1e6)
        yield offsets
        yield GaugeMetricFamily("dueq_leaderships", "Partitions led here", value=gauges.get("leaderships", 0))
        yield GaugeMetricFamily(
            "dueq_degraded", "1 while ZooKeeper is away", value=1 if gauges.get("degraded") else 0
        )


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    total = 0
    buckets: list[tuple[str, float]] = []
    for bound, count in zip((*histogram.bounds, None), list(histogram.counts), strict=True):
        total += count
        buckets.append(("+Inf" if bound is None else str(bound / 1e6), total))
    return buckets


def _by_topic(counts: dict[str, int], known: set[str]) -> dict[str, int]:
    summed: dict[str, int] = defaultdict(int)
    for topic, count in counts.items():
        summed[topic if topic in known else OTHER] += count
    return summed


def _summed(counts: dict[tuple[str, str], int], known: set[str]) -> dict[tuple[str, str], int]:
    summed: dict[tuple[str, str], int] = defaultdict(int)
    for (operation, topic), count in counts.items():
        summed[operation, topic if topic in known else OTHER] += count
    return summed
