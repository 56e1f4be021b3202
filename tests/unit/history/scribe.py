"""Writes histories by hand: instants in ms since the start, one call a line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

from dueq_chaos.history.checker import Judgement, check
from dueq_chaos.history.judging import Rules, Verdict
from dueq_chaos.history.reading import read_history

START_US = 1_700_000_000_000_000
"""Unix µs of 0 ms."""
BOOT_US = 5_000_000
"""The monotonic clock at 0 ms, µs."""
RULES = Rules(clock_us=20_000, grace_us=2_000_000, silence_us=5_000_000)
END_MS = 60_000


def payload_of(message: str) -> bytes:
    """The payload that a scribe schedules under an id."""
    return f"payload of {message}".encode()


class Scribe:
    """A history under construction. Producers are `p…`, consumers `c…`."""

    def __init__(self) -> None:
        self.lines: list[tuple[float, dict[str, Any]]] = []
        self._operation = 0

    def invoke(self, at: float, client: str, kind: str, **columns: Any) -> int:
        self._operation += 1
        self._add(at, event="invoke", client=client, op=self._operation, kind=kind, **columns)
        return self._operation

    def complete(self, at: float, client: str, operation: int, **columns: Any) -> None:
        self._add(at, event="complete", client=client, op=operation, **columns)

    def note(self, at: float, text: str) -> None:
        self._add(at, event="note", text=text)

    # ------------------------------------------------------------ whole calls; `until` None: no completion

    def schedule(
        self, message: str, due: int, at: float = 0, until: float | None = 10, outcome: str = "done",
        payload: bytes | None = None, client: str = "p",
    ) -> None:  # fmt: skip
        body = payload_of(message) if payload is None else payload
        number = self.invoke(
            at, client, "schedule", due=[START_US // 1000 + due], crc=[crc32(body)], size=[len(body)]
        )
        if until is not None:
            ids = [message if outcome == "done" else ""]
            self.complete(until, client, number, id=ids, outcome=[outcome])

    def move(
        self, message: str, due: int, at: float, until: float | None, outcome: str = "done", client: str = "p"
    ) -> None:
        number = self.invoke(at, client, "move", id=[message], due=[START_US // 1000 + due])
        if until is not None:
            self.complete(until, client, number, outcome=outcome)

    def cancel(
        self, message: str, at: float, until: float | None, outcome: str = "done", client: str = "p"
    ) -> None:
        number = self.invoke(at, client, "cancel", id=[message])
        if until is not None:
            self.complete(until, client, number, outcome=outcome)

    def deliver(
        self, message: str, due: int, released: float, received: float | None = None, token: int = 1,
        attempt: int = 1, lease: int = 30_000, payload: bytes | None = None, client: str = "c",
    ) -> None:  # fmt: skip
        at = released + 1 if received is None else received
        body = payload_of(message) if payload is None else payload
        number = self.invoke(at - 0.5, client, "receive")
        self.complete(
            at, client, number, id=[message], due=[START_US // 1000 + due], token=[token], attempt=[attempt],
            released=[START_US + round(released * 1000)], lease_ms=[lease], crc=[crc32(body)], size=[len(body)],
        )  # fmt: skip

    def settle(
        self, kind: str, message: str, at: float, until: float | None, token: int = 1, outcome: str = "done",
        client: str = "c", **columns: Any,
    ) -> None:  # fmt: skip
        number = self.invoke(at, client, kind, id=[message], token=[token], **columns)
        if until is not None:
            self.complete(until, client, number, outcome=outcome)

    def lose(self, message: str, at: float, token: int = 1, client: str = "c") -> None:
        self._add(at, event="lost", client=client, id=[message], token=[token])

    def close(self, at: float, until: float, client: str = "c") -> None:
        self.complete(until, client, self.invoke(at, client, "close"))

    def polls(self, client: str, first: float, last: float, every: float = 1000) -> None:
        """Empty receives: signs of life."""
        at = first
        while at <= last:
            self.complete(at + 1, client, self.invoke(at, client, "receive"))
            at += every

    # ------------------------------------------------------------ results

    def write(self, path: Path, end: float | None = END_MS) -> Path:
        """Write the file; a listener polls it to the end."""
        if end is not None:
            self.polls("c-listener", end, end)
        header = {"dueq_history": 1}
        lines = [line for _, line in sorted(self.lines, key=lambda item: item[0])]
        path.write_text("".join(json.dumps(line) + "\n" for line in (header, *lines)))
        return path

    def judge(self, folder: Path, rules: Rules = RULES, end: float | None = END_MS) -> Judgement:
        """Judge it, through a file; and see that looking at every message finds the same."""
        path = folder / f"history-{len(list(folder.iterdir()))}.jsonl"
        history = read_history(self.write(path, end))
        quick, slow = check(history, rules), check(history, rules, thorough=True)
        assert quick.findings == slow.findings
        return quick

    def verdicts(self, folder: Path, end: float | None = END_MS) -> list[Verdict]:
        """Which verdicts were given."""
        return [verdict for verdict, found in self.judge(folder, end=end).findings.items() if found]

    def _add(self, at_ms: float, **line: Any) -> None:
        at_us = round(at_ms * 1000)
        self.lines.append((at_ms, line | {"us": START_US + at_us, "mono": BOOT_US + at_us}))


def findings(judgement: Judgement) -> Sequence[tuple[str, int]]:
    """Verdicts and messages, flat."""
    return [(v.value, f.message) for v, found in judgement.findings.items() for f in found]
