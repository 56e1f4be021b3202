"""The Prometheus page shows every number, under bounded labels."""

from __future__ import annotations

import errno
import socket
import struct
import threading
from typing import Any
from urllib.request import urlopen

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from dueq import limits
from dueq.broker import metrics as metrics_module
from dueq.broker.metrics import OTHER, MetricsPage
from dueq.core.turn.metrics import CoreMetrics, Histogram


def page_of(metrics: CoreMetrics, gauges: dict[str, object] | None = None) -> str:
    page = MetricsPage(metrics)
    page.gauges = gauges or {}
    registry = CollectorRegistry()
    registry.register(page)
    return generate_latest(registry).decode()


def test_counters_histograms_and_gauges_are_shown() -> None:
    metrics = CoreMetrics()
    metrics.messages["schedule", "t"] += 7
    metrics.redelivered["t"] += 2
    metrics.errors["busy"] += 1
    metrics.lateness_of("t").observe(1_500, 3)
    metrics.committed(900)
    partition = {
        "topic": "t", "uid": 1, "index": 0, "role": "leader", "isr": ["b1", "b2"],
        "scheduled": 5, "ready": 1, "leased": 2,
    }  # fmt: skip
    text = page_of(
        metrics,
        {"partitions": [partition], "clock_offset_us": {"b2": -2_000}, "leaderships": 1, "degraded": ""},
    )
    for line in (
        'dueq_messages_total{operation="schedule",topic="t"} 7.0',
        'dueq_redeliveries_total{topic="t"} 2.0',
        'dueq_errors_total{code="busy"} 1.0',
        'dueq_lateness_seconds_bucket{le="0.002",topic="t"} 3.0',
        'dueq_lateness_seconds_count{topic="t"} 3.0',
        "dueq_commit_seconds_count 1.0",
        'dueq_messages_now{state="scheduled",topic="t"} 5.0',
        'dueq_isr_size{partition="0",topic="t"} 2.0',
        'dueq_clock_offset_seconds{peer="b2"} -0.002',
        "dueq_leaderships 1.0",
        "dueq_degraded 0.0",
    ):
        assert line in text, line


def test_a_broker_that_has_not_begun_yet_is_degraded() -> None:
    """One that waits for ZooKeeper, gives up and is started again always said that it is there."""
    assert "dueq_degraded 1.0" in page_of(CoreMetrics())


def test_ten_thousand_topics_do_not_make_ten_thousand_labels() -> None:
    metrics = CoreMetrics()
    for number in range(1_000):
        metrics.messages["schedule", f"t{number:04}"] += 1_000 - number
    text = page_of(metrics)
    shown = [line for line in text.splitlines() if line.startswith("dueq_messages_total")]
    assert len(shown) == limits.METRICS_TOPICS_MAX + 1
    assert any(f'topic="{OTHER}"' in line for line in shown)


def test_no_counter_goes_back_when_another_topic_becomes_larger() -> None:
    """It took a label from the smallest, and its counts from `other`: rates showed all of `other` as news."""
    metrics = CoreMetrics()
    for number in range(limits.METRICS_TOPICS_MAX + 2):
        metrics.messages["push", f"t{number:04}"] += 1_000 - number
    page = MetricsPage(metrics)
    before = counts_of(page)
    metrics.messages["push", f"t{limits.METRICS_TOPICS_MAX:04}"] += 500
    after = counts_of(page)
    assert before.keys() == after.keys()
    assert [topic for topic, count in before.items() if after[topic] < count] == []
    assert after[OTHER] == before[OTHER] + 500


def test_a_topic_that_gets_the_label_of_one_that_has_gone_counts_on_under_it() -> None:
    """It took its counts out of `other`: rates showed all that was left there as news."""
    metrics = CoreMetrics()
    for number in range(limits.METRICS_TOPICS_MAX + 2):
        metrics.messages["push", f"t{number:04}"] += 1_000 - number
    page = MetricsPage(metrics)
    before, promoted = counts_of(page), f"t{limits.METRICS_TOPICS_MAX:04}"
    assert promoted not in before
    metrics.forget("t0000")
    metrics.messages["push", promoted] += 5
    after = counts_of(page)
    assert (after[promoted], after[OTHER]) == (5, before[OTHER])


def test_no_counter_goes_back_when_a_topic_without_a_label_is_deleted() -> None:
    metrics = CoreMetrics()
    for number in range(limits.METRICS_TOPICS_MAX + 3):
        topic = f"t{number:04}"
        metrics.messages["push", topic] += 1_000 - number
        metrics.redelivered[topic] += 10
        metrics.lateness_of(topic).observe(1_500, 2)
    page = MetricsPage(metrics)
    before = samples_of(page, OTHER)
    gone = f"t{limits.METRICS_TOPICS_MAX + 1:04}"
    metrics.forget(gone)
    assert samples_of(page, OTHER) == before
    metrics.messages["push", gone] += 7  # it was made again
    assert counts_of(page)[OTHER] == before["dueq_messages_total", ("push",)] + 7


def samples_of(page: MetricsPage, topic: str) -> dict[tuple[str, tuple[str, ...]], float]:
    """All counters under the label of a topic, by name and further labels."""
    return {
        (sample.name, tuple(text for name, text in sample.labels.items() if name != "topic")): sample.value
        for family in page.collect()
        if family.type in ("counter", "histogram")
        for sample in family.samples
        if sample.labels.get("topic") == topic
    }


def counts_of(page: MetricsPage) -> dict[str, float]:
    """Messages by the label of their topic."""
    families = {family.name: family for family in page.collect()}
    return {sample.labels["topic"]: sample.value for sample in families["dueq_messages"].samples}


def test_the_lateness_of_the_many_is_added_up() -> None:
    metrics = CoreMetrics()
    for number in range(limits.METRICS_TOPICS_MAX + 3):
        metrics.messages["push", f"t{number:04}"] += 1_000 - number
        metrics.lateness_of(f"t{number:04}").observe(1_500, 2)
    text = page_of(metrics)
    assert f'dueq_lateness_seconds_count{{topic="{OTHER}"}} 6.0' in text
    assert f'dueq_lateness_seconds_bucket{{le="0.001",topic="{OTHER}"}} 0.0' in text
    assert f'dueq_lateness_seconds_sum{{topic="{OTHER}"}} 0.009' in text


def test_refusals_of_the_core_and_of_the_sockets_are_one_count() -> None:
    page = MetricsPage()
    page.core.errors["bad_frame"] += 2
    page.core.errors["busy"] += 1
    page.refused = {"bad_frame": 3, "wrong_cluster": 1}
    text = generate_latest(page.registry).decode()
    for line in (
        'dueq_errors_total{code="bad_frame"} 5.0',
        'dueq_errors_total{code="busy"} 1.0',
        'dueq_errors_total{code="wrong_cluster"} 1.0',
    ):
        assert line in text, line


def test_what_the_process_measures_is_shown_beside_the_core() -> None:
    page = MetricsPage()
    turns = Histogram((100, 1_000))
    turns.observe(700, 4)
    page.durations = {"loop_turn_seconds": turns}
    page.process = {"frames_received": 12}
    text = generate_latest(page.registry).decode()
    for line in (
        'dueq_loop_turn_seconds_bucket{le="0.0001"} 0.0',
        'dueq_loop_turn_seconds_bucket{le="0.001"} 4.0',
        "dueq_loop_turn_seconds_sum 0.0028",
        "dueq_frames_received_total 12.0",
        "process_resident_memory_bytes",
    ):
        assert line in text, line


def test_the_page_is_served_where_it_says() -> None:
    page = MetricsPage(CoreMetrics())
    address = page.serve("127.0.0.1:0")
    try:
        with urlopen(f"http://{address}/metrics", timeout=5) as answer:
            assert b"dueq_leaderships" in answer.read()
    finally:
        page.close()


def test_a_port_that_is_taken_is_an_error_that_names_it() -> None:
    """It said that an address is in use, and not which."""
    page, other = MetricsPage(), MetricsPage()
    address = page.serve("127.0.0.1:0")
    try:
        with pytest.raises(OSError, match=f"metrics on {address}: "):
            other.serve(address)
    finally:
        page.close()
        other.close()


def test_a_client_of_the_page_that_says_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kept a thread and a descriptor for as long as it liked, or for ever if it had lost its power."""
    monkeypatch.setattr(metrics_module, "_PATIENCE_S", 0.05)
    page = MetricsPage()
    host, _, port = page.serve("127.0.0.1:0").partition(":")
    with socket.create_connection((host, int(port)), timeout=30.0) as silent:
        assert silent.recv(1) == b""
    with urlopen(f"http://{host}:{port}/metrics", timeout=30.0) as answer:
        assert b"dueq_degraded" in answer.read()
    page.close()


def test_a_host_that_cannot_be_a_name_is_an_error_that_names_it() -> None:
    """A label of no characters ended the broker with the traceback of a codec."""
    with pytest.raises(OSError, match=r"metrics on a\.\.b:9100: "):
        MetricsPage().serve("a..b:9100")


def test_a_connection_that_is_reset_is_no_news(monkeypatch: pytest.MonkeyPatch) -> None:
    """Probes of load balancers end so, every few seconds: each left a traceback in the log."""
    page, served = MetricsPage(), threading.Event()
    broken: list[Any] = []
    host, _, port = page.serve("127.0.0.1:0").partition(":")
    server = page._server
    assert server is not None
    shut = server.shutdown_request

    def shut_and_tell(request: Any) -> None:
        shut(request)
        served.set()

    monkeypatch.setattr(server, "handle_error", lambda request, client_address: broken.append(request))
    monkeypatch.setattr(server, "shutdown_request", shut_and_tell)
    with socket.create_connection((host, int(port))) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert served.wait(30.0)
    page.close()
    assert not broken


def test_a_connection_for_which_there_is_no_descriptor_does_not_keep_a_processor_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It stays in the queue, and the thread of the page asked for it again and again, in the loop's time."""
    tries: list[socket.socket] = []

    def refuse(listening: socket.socket) -> tuple[socket.socket, object]:
        tries.append(listening)
        raise OSError(errno.EMFILE, "Too many open files")

    page = MetricsPage()
    host, _, port = page.serve("127.0.0.1:0").partition(":")
    with monkeypatch.context() as patched:
        patched.setattr(socket.socket, "accept", refuse)
        with socket.create_connection((host, int(port)), timeout=0.3) as silent, pytest.raises(TimeoutError):
            silent.recv(1)
    assert 1 <= len(tries) <= 10
    with urlopen(f"http://{host}:{port}/metrics", timeout=30.0) as answer:
        assert b"dueq_degraded" in answer.read()
    page.close()
