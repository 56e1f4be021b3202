# Made of aio/stream.py by scripts/generate-faces: write there.
"""Schedules the rows of an iterator, with only a few requests in flight."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from dueq import limits
from dueq.client import arguments, calls, times
from dueq.client.batches import Batch
from dueq.client.calls import Call
from dueq.client.core import PartsCall
from dueq.client.core.ports.effects import Completed
from dueq.client.core.ports.parts import whole
from dueq.client.host import Answer
from dueq.client.sync.topic_calls import TopicCalls
from dueq.client.sync.waiting import Pending
from dueq.client.times import Seconds
from dueq.errors import DueqError, InvalidRequest, PartialFailure

_BATCHES: Final = 8
"""Batches of one stream in flight, unless the caller says otherwise."""
_BATCHES_KEYED: Final = 32
"""The same where rows have keys: unique ones divide a batch over all partitions, so that it takes several to fill the
requests to each."""


@dataclass(slots=True)
class _Sent:
    """A request of a stream that is in flight."""

    batch: Batch
    call: Call[list[str]]
    pending: Pending


@dataclass(slots=True)
class _Part:
    """What became of a request of a stream that has failed.

    Attributes:
        outcomes: one for each row.
        call: what sends again the rows that failed; None: it was answered.
    """

    outcomes: Sequence[str | DueqError]
    call: Call[list[str]] | None = None


class Stream:
    """One call that schedules the rows of an iterator.

    Args:
        topic_calls: of the producer.
        cut: the rows, cut into requests.
        job: the key and until when it is hidden.
        in_flight: batches under way at once, 1–64; None: 8, or 32 if the rows have keys and no more than
            CLIENT_OUT_BYTES_MAX are under way.
        timeout: seconds for each request.
        window: each row may be due up to this much later.
        on_duplicate: what is done about unique keys that name messages already.
    """

    def __init__(
        self,
        topic_calls: TopicCalls,
        cut: Iterator[Batch],
        job: tuple[bytes, int],
        in_flight: int | None,
        timeout: float | None,
        window: Seconds | None,
        on_duplicate: str | None = None,
    ) -> None:
        self._calls = topic_calls
        self._cut, self._job = cut, job
        if in_flight is not None:
            arguments.count(in_flight, "in_flight", 1, limits.STREAM_REQUESTS_MAX)
        self._in_flight = in_flight
        self._timeout, self._window, self._on_duplicate = timeout, window, on_duplicate

    def requests(self) -> Generator[PartsCall, None, None]:
        """Send the rows; yield each request in order, once it is committed.

        Raises:
            PartialFailure: a request failed. Its outcomes begin after the yielded ones.
            InvalidRequest: a row is not valid. All requests before it were yielded. Errors of the iterators come
            the same way.
        """
        under_way: deque[_Sent] = deque()
        more, fault, yielded = True, None, False
        try:
            while more or under_way:
                if more and self._may_send(under_way) and _draws(under_way, yielded):
                    yielded = False
                    try:
                        under_way.append(self._send(next(self._cut)))
                    except StopIteration:
                        more = False
                    except Exception as error:
                        more, fault = False, error
                elif under_way:
                    sent = under_way.popleft()
                    answer = sent.pending.answer()
                    if not isinstance(answer, Completed) or _is_refused(answer.value):
                        raise self._failure(sent, answer, under_way)
                    yielded = True
                    yield answer.value
            if fault is not None:
                raise fault
        finally:
            for sent in under_way:
                sent.pending.abandon()

    def _may_send(self, under_way: deque[_Sent]) -> bool:
        """Whether one more batch may be under way."""
        count = len(under_way)
        if count < (self._in_flight or _BATCHES):
            return True
        if self._in_flight is not None or under_way[-1].batch.keys is None or count >= _BATCHES_KEYED:
            return False
        return sum(sent.call.bytes for sent in under_way) < limits.CLIENT_OUT_BYTES_MAX

    def call(self, batch: Batch) -> Call[list[str]]:
        """Return the request that schedules these rows."""
        relative = times.is_relative(batch.dues) or times.is_relative(batch.expires)
        clock = self._calls.clock(relative, self._timeout)
        return calls.schedule_many(
            self._calls.topic,
            batch.payloads,
            batch.dues,
            clock,
            keys=batch.keys,
            ranks=batch.ranks,
            groups=batch.groups,
            headers=batch.headers,
            expires=batch.expires,
            max_attempts=batch.max_attempts,
            window=self._window,
            on_duplicate=self._on_duplicate,
            job=self._job,
        )

    def _send(self, batch: Batch) -> _Sent:
        try:
            call = self.call(batch)
        except InvalidRequest as error:
            raise InvalidRequest(f"of the rows from {batch.first} on, {error}") from None
        return _Sent(batch, call, self._calls.send(call, self._timeout))

    def _failure(self, sent: _Sent, answer: Answer, under_way: deque[_Sent]) -> PartialFailure:
        """Wait for the other requests in flight; return the error to raise."""
        text = f"the stream ended at row {sent.batch.first}"
        parts = [self._answered(sent.call, len(sent.batch.payloads), answer)]
        while under_way:
            sent = under_way.popleft()
            answer = sent.pending.answer()
            parts.append(self._answered(sent.call, len(sent.batch.payloads), answer))
        return self._failed(text, parts)

    def _answered(self, call: Call[list[str]], rows: int, answer: Answer) -> _Part:
        if isinstance(answer, Completed):
            return _Part(answer.value.found())
        error = calls.error_of(answer, call, self._calls.run)
        outcomes = error.outcomes if isinstance(error, PartialFailure) else [error] * rows
        return _Part(outcomes, calls.repeated(answer, call))

    def _failed(self, text: str, parts: list[_Part]) -> PartialFailure:
        outcomes = [outcome for part in parts for outcome in part.outcomes]
        first = next(outcome for outcome in outcomes if isinstance(outcome, DueqError))
        return PartialFailure(f"{text}: {first}", outcomes, partial(self._again, parts))

    def _again(self, parts: list[_Part], timeout: float | None) -> list[str]:
        """Send again what failed. Whichever failure is retried next, it goes on from what came of this."""
        under_way: deque[tuple[int, Call[list[str]], Pending]] = deque()
        try:
            for place, part in enumerate(parts):
                if part.call is not None:
                    under_way.append((place, part.call, self._calls.send(part.call, timeout)))
            while under_way:
                place, call, pending = under_way[0]
                answer = pending.answer()
                under_way.popleft()
                parts[place] = self._answered(call, len(parts[place].outcomes), answer)
        finally:
            for _, _, pending in under_way:
                pending.abandon()
        if any(part.call is not None for part in parts):
            raise self._failed("requests of the stream failed again", parts)
        return whole([outcome for part in parts for outcome in part.outcomes])


def _draws(under_way: deque[_Sent], yielded: bool) -> bool:
    """Whether the next batch is drawn before another answer is yielded.

    An answer that is there does not wait for a slow source. But after each one a batch is drawn, or nothing would be
    under way while a caller works on many answers.
    """
    if not under_way or (yielded and len(under_way) > 1):
        return True
    return not under_way[0].pending.came()


def _is_refused(call: PartsCall) -> bool:
    """Whether a row was refused, since its unique key names another message."""
    return call.met and any(isinstance(row, DueqError) for row in call.found())
