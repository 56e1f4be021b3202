"""Successors: the brokers that lead what this one led, and whether its consumers are to be told.

A consumer asks every two seconds who leads. After a hand-over nothing else makes it ask: the old leader answers its
beats as before, and a new one to which it has never attached cannot push. So the old leader tells it once the new one
serves, or what falls due meanwhile would wait for that question.
"""

from __future__ import annotations

from typing import Final

from dueq.instant import Now

TOLD_US: Final = 2_000_000
"""A consumer told of a new leader this lately has attached to it: more partitions that go there are no news."""


class Successors:
    """The partitions of one topic that this broker has led, and of which nobody is known to serve them since."""

    def __init__(self) -> None:
        self._open: set[int] = set()
        self._told_us: dict[str, int] = {}

    def led(self, uid: int) -> None:
        """This broker leads it (again)."""
        self._open.discard(uid)

    def unled(self, uid: int) -> None:
        """This broker leads it no more."""
        self._open.add(uid)

    def is_news(self, uid: int, broker_id: str, now: Now) -> bool:
        """Note that another broker serves a partition; returns whether consumers are to be told."""
        if uid not in self._open:
            return False
        self._open.discard(uid)
        told_us = self._told_us.get(broker_id)
        if told_us is not None and now.mono_us - told_us < TOLD_US:
            return False
        self._told_us[broker_id] = now.mono_us
        return True
