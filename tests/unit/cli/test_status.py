"""The page that `dueq status` draws."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from rich.console import Console

from dueq.cli import status as command
from dueq.cli.main import run
from dueq.cli.sparkline import sparkline
from dueq.cli.status import render


def text_of(document: dict[str, Any]) -> str:
    console = Console(width=160, record=True, file=None, quiet=False, force_terminal=False)
    with console.capture() as capture:
        console.print(render(document))
    return capture.get()


DOCUMENT: dict[str, Any] = {
    "brokers": {
        "b1": {
            "alive": True, "endpoint": "tcp://127.0.0.1:7400", "metrics": "127.0.0.1:7500", "leaderships": 2,
            "degraded": "zookeeper", "clock": {"offset_ms": -0.42, "hold": False}, "inserts_refused": "",
        },
        "b2": {"alive": False, "endpoint": "tcp://127.0.0.1:7401"},
    },
    "topics": {
        "departures": {
            "kind": "timeline", "replicas": 2, "min_isr": 2,
            "partitions": [
                {
                    "uid": 7, "index": 0, "leader": "b1", "epoch": 3, "serving": True, "isr": ["b1"],
                    "replicas": ["b1", "b2"], "lag": {"b2": 12}, "scheduled": 1500, "ready": 1, "leased": 2,
                    "due_next_minute": [0, 5, 10],
                },
                {"uid": 8, "index": 1, "leader": "", "due_next_minute": [1]},
            ],
        }
    },
    "consumers": [
        {"topic": "departures", "consumer": "c0ffee", "broker": "b1", "credit": 100, "leased": 2},
        {"topic": "departures", "consumer": "c0ffee", "broker": "b2", "credit": 56, "leased": 0},
    ],
}  # fmt: skip


def test_the_page_says_who_lives_who_leads_and_who_is_in_sync() -> None:
    page = text_of(DOCUMENT)
    assert "1 of 2 alive" in page
    assert "degraded: zookeeper" in page
    assert "no answer" in page
    assert "1/2 b1 (b2)" in page
    assert "none" in page
    assert "1,500" in page


@pytest.mark.parametrize("everywhere", ["0.0.0.0", "[::]", "*"])
def test_metrics_that_are_served_everywhere_are_shown_where_they_are_reached(everywhere: str) -> None:
    broker = {**DOCUMENT["brokers"]["b1"], "endpoint": "tcp://10.1.2.3:9200", "metrics": f"{everywhere}:9400"}
    page = text_of({"brokers": {"b1": broker}})
    assert "10.1.2.3:9400" in page
    assert everywhere not in page


def test_the_page_names_replicas_that_are_not_opened_and_still_says_whose_they_are() -> None:
    """A reason is a line of its own: in the column it left no room for the others."""
    broker = {**DOCUMENT["brokers"]["b1"], "degraded": "", "unopened": {"7": "damaged. " * 40, "9": "newer"}}
    page = text_of({**DOCUMENT, "brokers": {"b1": broker}})
    assert "2 replicas not opened, its log says why: 7 9" in page
    assert "tcp://127.0.0.1:7400" in page


def test_a_consumer_is_one_line_with_its_sessions_added_up() -> None:
    lines = [line for line in text_of(DOCUMENT).splitlines() if "c0ffee" in line]
    assert len(lines) == 1
    assert "156" in lines[0]


def test_documents_with_missing_keys_are_drawn_all_the_same() -> None:
    assert "no topics yet" in text_of({})
    assert "Brokers" in text_of({"brokers": {"b1": {}}, "topics": {"t": {}}, "consumers": [{}]})


def test_while_no_broker_answers_the_last_page_stays_with_the_reason() -> None:
    page = text_of(DOCUMENT | {"unreachable": "no broker could be reached"})
    assert "no broker could be reached" in page
    assert "departures" in page


class Interrupted:
    """A client whose user presses Ctrl-C after two pages."""

    def __init__(self) -> None:
        self._pages = iter([DOCUMENT, DOCUMENT])

    def status(self) -> dict[str, Any]:
        for page in self._pages:
            return page
        raise KeyboardInterrupt


def test_without_a_terminal_watching_writes_page_after_page(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @contextmanager
    def connect(*_: object) -> Iterator[Interrupted]:
        yield Interrupted()

    monkeypatch.setattr(command, "connect", connect)
    assert run(["status", "--watch", "--every", "0.1"]) == 130
    assert capsys.readouterr().out.count("Brokers: 1 of 2 alive") == 2


def test_a_sparkline_adds_neighbours_up_and_shows_nothing_as_a_dot() -> None:
    assert sparkline([], 10) == ""
    assert sparkline([0, 0], 10) == "··"
    assert sparkline([1, 0, 8], 10) == "▁·█"
    assert len(sparkline([1] * 60, 30)) == 30
    assert sparkline([1] * 61, 30) == "█" * 20 + "▃"
