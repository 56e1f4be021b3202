"""The Prometheus page: the core's counters, and gauges that the loop publishes once a second.

The page is made in a thread of its own while the loop goes on counting: it works on copies that one call makes (under
the GIL, at once), and labels are capped: a thousand topics must not cost the loop its milliseconds.
"""

from __future__ import annotations

import errno
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from operator import add, lt, sub
from threading import Lock
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

from dueq import limits
from dueq.core.turn.metrics import LATENESS_BUCKETS_US, CoreMetrics, Histogram

OTHER = "other"
_LOCAL = "127.0.0.1"
_PATIENCE_S = 10.0
_REST_S = 0.1


class _Shares:
    """Counts by label. Those of topics without one are summed up, and each count is shown under one label only.

    What `other` has counted stays there, though a topic is deleted, or gets the label of one that was. Prometheus takes
    a counter that is less than before for one that has begun anew.
    """

    def __init__(self) -> None:
        self._other: dict[str, list[int]] = {}
        # What `other` has of each topic that is there.
        self._held: dict[tuple[str, str], list[int]] = {}

    def of(
        self, counts: Mapping[tuple[str, str], list[int]], known: set[str]
    ) -> dict[tuple[str, str], list[int]]:
        """Return (what, label) -> counts.

        Args:
            counts: (what, topic) -> as counted by now; always as many for one thing.
            known: the topics that have labels.
        """
        shares: dict[tuple[str, str], list[int]] = {}
        held, self._held = self._held, {}
        for (what, topic), now in counts.items():
            nothing = [0] * len(now)
            before = held.get((what, topic), nothing)
            if any(map(lt, now, before)):  # it was deleted, and made again
                before = nothing
            more = list(map(sub, now, before))
            if topic in known and topic != OTHER:
                shares[what, topic] = more
                self._held[what, topic] = before
            else:
                self._other[what] = list(map(add, self._other.get(what, nothing), more))
                self._held[what, topic] = now
        return shares | {(what, OTHER): summed for what, summed in self._other.items()}


class MetricsPage(Collector):
    """Turns counts into metrics whenever the page is asked for.

    Attributes:
        core: the core's counters, once there is a core.
        gauges: the latest published gauges (`BrokerCore.gauges`).
        process: further counters of the process: name -> value.
        refused: frames that the sockets refused, by code.
        durations: further histograms: name -> histogram.
    """

    def __init__(self, core: CoreMetrics | None = None) -> None:
        self.core = CoreMetrics() if core is None else core
        self.gauges: dict[str, Any] = {}
        self.process: dict[str, float] = {}
        self.refused: Mapping[str, int] = {}
        self.durations: dict[str, Histogram] = {}
        self.registry = CollectorRegistry()
        self.registry.register(self)
        ProcessCollector(registry=self.registry)
        self._labelled: set[str] = set()
        self._messages, self._redelivered, self._lateness = _Shares(), _Shares(), _Shares()
        # Two that ask at once have a thread each.
        self._lock = Lock()
        self._server: WSGIServer | None = None

    def serve(self, address: str) -> str:
        """Begin to answer on `ADDRESS:PORT`; returns the same with the real port.

        Raises:
            OSError: the port is taken, or the address is none of this machine's.
        """
        host, _, port = address.rpartition(":")
        try:
            self._server, _ = start_http_server(int(port), host.strip("[]") or _LOCAL, self.registry)
        except OSError as error:
            reason = error.strerror or error
            raise OSError(error.errno, f"cannot serve metrics on {address}: {reason}") from error
        except UnicodeError as error:
            raise OSError(errno.EINVAL, f"cannot serve metrics on {address}: {error}") from error
        self._server.RequestHandlerClass = _impatient(self._server.RequestHandlerClass)
        self._server.get_request = _unhurried(self._server.get_request)  # type: ignore[method-assign]
        return f"{host or _LOCAL}:{self._server.server_port}"

    def close(self) -> None:
        """Stop answering."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def collect(self) -> Iterable[Metric]:
        """Return every metric."""
        with self._lock:
            known = self._topics()
            return [*self._counters(known), *self._histograms(known), *self._gauges(known)]

    def _topics(self) -> set[str]:
        """The topics that get labels of their own: those that have one, and then those with the most messages.

        A topic that went to `other` and back would take its counts along: Prometheus takes a counter that is less than
        before for one that has begun anew.
        """
        weights: dict[str, int] = defaultdict(int)
        for partition in self.gauges.get("partitions", []):
            weights[partition["topic"]] += partition["scheduled"] + partition["leased"]
        for (_, topic), count in dict(self.core.messages).items():
            weights[topic] += count
        labelled = self._labelled & weights.keys()
        others = sorted(weights.keys() - labelled, key=lambda topic: (-weights[topic], topic))
        self._labelled = labelled | set(others[: limits.METRICS_TOPICS_MAX - len(labelled)])
        return self._labelled

    def _counters(self, known: set[str]) -> Iterable[Metric]:
        core = self.core
        messages = CounterMetricFamily(
            "dueq_messages", "Messages by operation", labels=["operation", "topic"]
        )
        counts = {labels: [count] for labels, count in dict(core.messages).items()}
        for labels, [count] in self._messages.of(counts, known).items():
            messages.add_metric(labels, count)
        yield messages
        redelivered = CounterMetricFamily("dueq_redeliveries", "Pushes after the first", labels=["topic"])
        counts = {("", topic): [count] for topic, count in dict(core.redelivered).items()}
        for (_, topic), [count] in self._redelivered.of(counts, known).items():
            redelivered.add_metric([topic], count)
        yield redelivered
        errors = CounterMetricFamily("dueq_errors", "Refusals and bad frames", labels=["code"])
        for code, count in (Counter(dict(core.errors)) + Counter(dict(self.refused))).items():
            errors.add_metric([code], count)
        yield errors
        yield CounterMetricFamily("dueq_elections", "Leaderships begun", value=core.elections)
        yield CounterMetricFamily("dueq_pauses", "Pauses of the process", value=core.pauses)
        for name, value in self.process.items():
            yield CounterMetricFamily(f"dueq_{name}", f"Process: {name.replace('_', ' ')}", value=value)

    def _histograms(self, known: set[str]) -> Iterable[Metric]:
        lateness = HistogramMetricFamily(
            "dueq_lateness_seconds", "From the due instant to the push (first deliveries)", labels=["topic"]
        )
        counts = {
            ("", topic): [*histogram.counts, histogram.total_us]
            for topic, histogram in list(self.core.lateness.items())
        }
        for (_, topic), [*parts, total_us] in self._lateness.of(counts, known).items():
            lateness.add_metric([topic], _buckets(LATENESS_BUCKETS_US, parts), total_us / 1e6)
        yield lateness
        durations = {"commit_seconds": self.core.commit, **self.durations}
        for name, histogram in durations.items():
            family = HistogramMetricFamily(f"dueq_{name}", _DURATIONS.get(name, name.replace("_", " ")))
            buckets = _buckets(histogram.bounds, list(histogram.counts))
            family.add_metric([], buckets, histogram.total_us / 1e6)
            yield family

    def _gauges(self, known: set[str]) -> Iterable[Metric]:
        gauges = self.gauges
        states = GaugeMetricFamily(
            "dueq_messages_now", "Messages led here, by state", labels=["state", "topic"]
        )
        isr = GaugeMetricFamily("dueq_isr_size", "Replicas in sync", labels=["topic", "partition"])
        counts: Counter[tuple[str, str]] = Counter()
        for partition in gauges.get("partitions", []):
            if partition["role"] != "leader":
                continue
            topic = _label(partition["topic"], known)
            for state in ("scheduled", "ready", "leased"):
                counts[state, topic] += partition[state]
            if topic in known:
                isr.add_metric([topic, str(partition["index"])], len(partition["isr"]))
        for labels, count in counts.items():
            states.add_metric(labels, count)
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
            "dueq_degraded",
            "1 while ZooKeeper is away, and until the broker has begun",
            value=1 if gauges.get("degraded", True) else 0,
        )


_DURATIONS = {
    "commit_seconds": "From append to commit, per record",
    "loop_turn_seconds": "One turn of the event loop",
    "group_commit_seconds": "One synced write of the store",
}


def _impatient(handler: Any) -> Any:
    """Return a handler that leaves a client which says nothing, or has gone: each connection has a thread."""

    class Impatient(handler):  # type: ignore[misc]
        timeout = _PATIENCE_S

        def handle(self) -> None:
            with suppress(TimeoutError, ConnectionError):
                super().handle()

    return Impatient


def _unhurried(accept: Callable[[], Any]) -> Callable[[], Any]:
    """Return what accepts a connection, and rests where that fails: it stays there, and is offered again at once."""

    def accept_or_rest() -> Any:
        try:
            return accept()
        except OSError:
            time.sleep(_REST_S)
            raise

    return accept_or_rest


def _label(topic: str, known: set[str]) -> str:
    return topic if topic in known else OTHER


def _buckets(bounds: Sequence[int], counts: Sequence[int]) -> list[tuple[str, float]]:
    total = 0
    buckets: list[tuple[str, float]] = []
    for bound, count in zip((*bounds, None), counts, strict=True):
        total += count
        buckets.append(("+Inf" if bound is None else str(bound / 1e6), total))
    return buckets
