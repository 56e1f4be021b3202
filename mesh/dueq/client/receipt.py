"""An acknowledged request: more than the ids of its messages."""

from __future__ import annotations

from dueq.client.core.ports.parts import PartsCall


class Receipt:
    """An acknowledged call that schedules.

    Attributes:
        rows: messages that are committed.
        stamp_ms: the mesh's time (Unix ms) at which they were appended; of several requests the first. A
            repeated request gets its first answer, so a stamp from before the caller's start means that
            they were there already.

    Raises:
        KeyTaken, PartialFailure: rows were refused, since their unique keys name other messages.
    """

    __slots__ = ("_call", "rows", "stamp_ms")

    def __init__(self, call: PartsCall) -> None:
        self._call = call
        self.rows = call.rows
        if call.met:
            call.ids()  # raises if a row was refused
        self.stamp_ms = min((part.reply.stamp for part in call.parts if part.reply is not None), default=0)

    def ids(self) -> list[str]:
        """Return one message id per row, in order."""
        return self._call.ids()
