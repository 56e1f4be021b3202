"""Many requests to ZooKeeper under way at once, each answered exactly once, all on one thread.

kazoo keeps a request that is handed to it while the connection is away, sends it after the reconnect, and can
lose the answer of one that is handed over just as a session ends. Here a lost connection ends every request that
is under way: those that were handed over with ConnectionLoss, the others with NotSent. Later answers of kazoo are
ignored.

The number handed over is bounded. kazoo wakes its thread with one byte per request, through a socket pair that holds
fewer than 300 of them, and then blocks its caller until the connection is back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any, Final

from kazoo.exceptions import ConnectionClosedError, ConnectionLoss, KazooException, SessionExpiredError

from dueq.errors import DueqError

_WINDOW: Final = 64

Send = Callable[[], Any]
"""Calls one of kazoo's `..._async` and returns its IAsyncResult."""
Ended = Callable[[Any, Exception | None], None]
"""Gets the value, or the error."""
Procedure = Generator[Sequence[Send], list[Any], Any]
"""Yields requests to make side by side, gets back one value or exception for each, returns its result."""


class NotSent(Exception):
    """The request never left this process: there is no connection."""


CONNECTION_ERRORS: Final = (NotSent, ConnectionLoss, SessionExpiredError, ConnectionClosedError)


class Requests:
    """The requests under way; belongs to one thread."""

    def __init__(self, enqueue: Callable[[Callable[[], None]], None]) -> None:
        """Take what brings a call onto the owning thread."""
        self._enqueue = enqueue
        self._waiting: deque[tuple[Send, Ended]] = deque()
        self._waiting_urgent: deque[tuple[Send, Ended]] = deque()
        self._sent: dict[int, Ended] = {}
        self._last = 0

    def submit(self, send: Send, ended: Ended, *, urgent: bool = False) -> None:
        """Make a request; `ended` is called once, later, on the owning thread.

        Args:
            send: hands the request to kazoo.
            ended: gets the outcome.
            urgent: goes ahead of everything that is not.
        """
        (self._waiting_urgent if urgent else self._waiting).append((send, ended))
        self._fill()

    def run(self, procedure: Procedure, ended: Ended, *, urgent: bool = True) -> None:
        """Run a procedure to its end; its requests go ahead of what is not urgent, unless it is not urgent itself.

        When the connection is lost the procedure is closed and `ended` gets a connection error; it may
        have had any part of its effect. `ended` also gets a KazooException or DueqError that it raises.
        """
        self._advance(procedure, None, ended, urgent)

    def connection_lost(self) -> None:
        """End everything that is under way."""
        sent, self._sent = self._sent, {}
        waiting = [*self._waiting_urgent, *self._waiting]
        self._waiting_urgent.clear()
        self._waiting.clear()
        for ended in sent.values():
            ended(None, ConnectionLoss())
        for _, ended in waiting:
            ended(None, NotSent())

    # ------------------------------------------------------------ inside

    def _fill(self) -> None:
        while len(self._sent) < _WINDOW and (self._waiting_urgent or self._waiting):
            send, ended = (self._waiting_urgent or self._waiting).popleft()
            self._last += 1
            self._sent[self._last] = ended
            # Called on a thread of kazoo's.
            send().rawlink(partial(self._answered, self._last))

    def _answered(self, number: int, result: Any) -> None:
        self._enqueue(partial(self._take, number, result))

    def _take(self, number: int, result: Any) -> None:
        ended = self._sent.pop(number, None)
        if ended is None:
            return
        error = result.exception
        ended(None if error is not None else result.value, error)
        self._fill()

    def _advance(self, procedure: Procedure, answers: list[Any] | None, ended: Ended, urgent: bool) -> None:
        try:
            sends = next(procedure) if answers is None else procedure.send(answers)
        except StopIteration as stop:
            ended(stop.value, None)
            return
        except (KazooException, DueqError) as error:
            ended(None, error)
            return
        self._gather(procedure, sends, ended, urgent)

    def _gather(self, procedure: Procedure, sends: Sequence[Send], ended: Ended, urgent: bool) -> None:
        answers: list[Any] = [None] * len(sends)
        missing = len(sends)

        def answered(index: int, value: Any, error: Exception | None) -> None:
            nonlocal missing
            answers[index] = value if error is None else error
            missing -= 1
            if missing:
                return
            lost = next((a for a in answers if isinstance(a, CONNECTION_ERRORS)), None)
            if lost is None:
                self._advance(procedure, answers, ended, urgent)
            else:
                procedure.close()
                ended(None, lost)

        for index, send in enumerate(sends):
            self.submit(send, partial(answered, index), urgent=urgent)
        if not sends:
            self._advance(procedure, [], ended, urgent)


def one(send: Send) -> Generator[Sequence[Send], list[Any], Any]:
    """Make one request inside a procedure (`yield from`) and return its value, or raise its error."""
    (answer,) = yield [send]
    if isinstance(answer, Exception):
        raise answer
    return answer
