"""A page of the dashboard, its content and its delay: many topics, a crowded second, and a broker that is killed."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import reduce
from http.client import HTTPConnection
from operator import getitem
from typing import Any

from dueq import Client, DueqError
from dueq.bench.figures import Figure, Row, Target
from dueq.bench.gateways import gateway_of
from dueq.bench.processes import cpu_ms_per_s, rss_anon_mb
from dueq.bench.serving import most_led, seconds_until, served
from dueq.bench.stage import Stage
from dueq.bench.tasks import in_threads
from dueq.errors import ClientClosed

_TOPICS, _QUICK_TOPICS = 10_000, 40
_THREADS = 4
_BATCH = 5_000
_BROKERS, _QUICK_BROKERS = 7, 3
_OF_KILL = 20
"""Topics of the mesh of which a broker is killed."""
_OF_SECOND, _QUICK_OF_SECOND = 1_000_000, 20_000
"""Messages that are due at one second."""
_AHEAD_S = 1_800
_SAID_S = 3.0
"""A page says within so long that a broker was killed."""
_WATCHED_S = 10.0
_PATIENCE_S = 600.0
_TIMEOUT_S = 60.0

View = dict[str, Any]


class Page:
    """An open page of the dashboard.

    Args:
        port: of the gateway, on the loopback.
        query: what it shows.

    Raises:
        RuntimeError: it was refused.
    """

    def __init__(self, port: int, query: str = "") -> None:
        self._connection = HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_S)
        self._connection.request("GET", f"/dashboard/live{query}")
        self._answer = self._connection.getresponse()
        if self._answer.status != 200:
            raise RuntimeError(f"a page was refused: {self._answer.read().decode()}")

    def close(self) -> None:
        """Close it."""
        self._answer.close()
        self._connection.close()

    def views(self) -> Iterator[View]:
        """Yield the view of the page, each time that it changes."""
        view: View = {}
        while line := self._answer.readline():
            if line.startswith(b"data: {"):
                view = json.loads(line[6:])
            elif line.startswith(b"data: ["):
                for place, *value in json.loads(line[6:]):
                    inside = reduce(getitem, place[:-1], view)
                    if value:
                        inside[place[-1]] = value[0]
                    else:
                        del inside[place[-1]]
            else:
                continue
            yield view


def _seconds_until(views: Iterator[View], condition: Callable[[View], bool]) -> float:
    """How long it takes until a page shows something."""
    begun_s = time.monotonic()
    for view in views:
        if condition(view):
            return time.monotonic() - begun_s
        if time.monotonic() - begun_s > _PATIENCE_S:
            break
    raise RuntimeError("the page did not show it")


def topics(stage: Stage) -> list[Figure]:
    """A page of the dashboard over 10,000 topics on three brokers."""
    count = stage.pick(_TOPICS, _QUICK_TOPICS)
    name, words = "page-topics", f"{count:,} topics"
    rows = [
        Row(f"{name}/first", f"{words}: until a page of a new gateway lists them", "s"),
        Row(f"{name}/again", "until the next page does", "s"),
        Row(f"{name}/search", "until a search has found one of them", "s"),
        Row(f"{name}/memory", "RssAnon of the gateway", "MB"),
        Row(f"{name}/gateway", "processor of the gateway while a page is open", "ms/s"),
        Row(f"{name}/brokers", "processor of all brokers while a page is open", "ms/s"),
    ]
    with stage.mesh() as (mesh, client, _):
        _make(client, count)

        def once() -> dict[str, float]:
            with gateway_of(mesh, stage.folder) as (child, port):
                first_s, again_s = (_opened(port, "", count) for _ in range(2))
                search_s = _opened(port, f"?search=topic-{count - 1:05}", 1)
                with closing(Page(port)) as page:
                    next(page.views())
                    gateway, *brokers = cpu_ms_per_s([child.pid, *mesh.pids], _WATCHED_S)
                values = (first_s, again_s, search_s, rss_anon_mb(child.pid), gateway, sum(brokers))
            return {row.name: value for row, value in zip(rows, values, strict=True)}

        return stage.repeat(rows, stage.pick(3, 1), once)


def _opened(port: int, query: str, found: int) -> float:
    begun_s = time.monotonic()
    with closing(Page(port, query)) as page:
        _seconds_until(page.views(), lambda view: view["found"] == found)
    return time.monotonic() - begun_s


def _make(client: Client, count: int) -> None:
    numbers = itertools.count()

    def work() -> None:
        while (number := next(numbers)) < count:
            _make_one(client, f"topic-{number:05}")

    in_threads(_THREADS, work)


def _make_one(client: Client, name: str) -> None:
    """On a machine that has much else to do, a broker may fall silent meanwhile."""
    deadline_s = time.monotonic() + _PATIENCE_S
    while True:
        try:
            client.create_topic(name, partitions=1, replicas=3, exist_ok=True, timeout=_TIMEOUT_S)
            return
        except ClientClosed:
            raise
        except DueqError:
            if time.monotonic() > deadline_s:
                raise
        time.sleep(1.0)


def second(stage: Stage) -> list[Figure]:
    """A page of the dashboard over a million messages at one second."""
    count = stage.pick(_OF_SECOND, _QUICK_OF_SECOND)
    row = Row(
        "page-second/exact", f"{count:,} messages at one second: until a page shows exactly so many", "s"
    )

    def once() -> dict[str, float]:
        with stage.mesh() as (mesh, client, _), gateway_of(mesh, stage.folder) as (_, port):
            topic = stage.topic(client, 6, replicas=3)
            due_ms = (int(time.time()) + _AHEAD_S) * 1000
            producer = client.producer(topic)
            for begin in range(0, count, _BATCH):
                rows = min(_BATCH, count - begin)
                producer.schedule_many([b"x"] * rows, [due_ms] * rows)
            with closing(Page(port, f"?topic={topic}&ahead=3600")) as page:
                seconds = {str(due_ms // 1000): count}
                exact_s = _seconds_until(page.views(), lambda view: view["chart"]["due"] == seconds)
            return {row.name: exact_s}

    return stage.repeat([row], stage.pick(3, 1), once)


def killed(stage: Stage) -> list[Figure]:
    """One of seven brokers is killed while somebody looks, and comes back."""
    brokers = stage.pick(_BROKERS, _QUICK_BROKERS)
    name = "page-kill"
    rows = [
        Row(f"{name}/said", f"one of {brokers} brokers killed: until the page says so", "s", Target(at_most=_SAID_S)),
        Row(f"{name}/led", "until it says that nothing is without leader", "s"),
        Row(f"{name}/solved", "started again: until it says that all is well", "s"),
    ]  # fmt: skip
    with stage.mesh(brokers) as (mesh, client, _), gateway_of(mesh, stage.folder) as (_, port):
        _make(client, _OF_KILL)

        def once() -> dict[str, float]:
            seconds_until(client, lambda topics: served(topics, _OF_KILL), _PATIENCE_S)
            with closing(Page(port)) as page:
                views = page.views()
                _seconds_until(views, _well)
                victim = most_led(mesh, client.topics())
                mesh.kill(victim)
                away = f"away {mesh.brokers[victim].broker_id}"
                said_s = _seconds_until(views, lambda view: away in _keys(view))
                led_s = said_s + _seconds_until(views, lambda view: view["totals"]["leaderless"] == 0)
                mesh.start_broker(victim)
                solved_s = _seconds_until(views, _well)
            return {row.name: value for row, value in zip(rows, (said_s, led_s, solved_s), strict=True)}

        return stage.repeat(rows, stage.pick(5, 1), once)


def _keys(view: View) -> set[str]:
    return {alarm["key"] for alarm in view["alarms"]["shown"]}


def _well(view: View) -> bool:
    return not view["alarms"]["shown"] and view["totals"]["leaderless"] == 0
