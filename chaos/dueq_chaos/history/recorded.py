"""The SDK's producer and consumer, writing a history of all that they do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar
from zlib import crc32

from dueq import Consumer, Message, Outcome, Producer
from dueq.errors import (
    DueqError,
    MessageLeased,
    MessageNotFound,
    OutcomeUnknown,
    PartialFailure,
    StaleLease,
)
from dueq_chaos.history.operations import Kind
from dueq_chaos.history.recorder import Recorder

T = TypeVar("T")
_FINAL = ("done", "leased", "not_found", "stale")


class _Call:
    """One operation and its retries.

    Args:
        recorder, client, kind, columns: for its invocation, which is written now.
        rows: how many messages it names.
    """

    def __init__(self, recorder: Recorder, client: str, kind: Kind, rows: int, **columns: Any) -> None:
        self._recorder, self._client, self._insert = recorder, client, kind is Kind.SCHEDULE
        self._outcome = ["refused"] * rows
        self._ids = [""] * rows
        self._number = recorder.invoke(client, kind, **columns)

    def carry_out(self, call: Callable[[], T], rows_of: Callable[[T], Sequence[Any]]) -> T:
        """Run it, or a retry of it, and write its outcome; an error raised has a `retry` that is written too.

        Args:
            call: does it.
            rows_of: takes what it returns apart: an id or an `Outcome` for each row.
        """
        try:
            value = call()
        except OutcomeUnknown as error:
            self._complete([error] * len(self._outcome), error)
            raise OutcomeUnknown(str(error), self._again(error.retry, rows_of)) from error
        except PartialFailure as error:
            self._complete(error.outcomes, error)
            raise PartialFailure(str(error), error.outcomes, self._again(error.retry, rows_of)) from error
        except StaleLease as error:
            # Not `message.lost`: a lease that is over by the consumer's clock may have been settled all the same.
            self._complete(error.outcomes, error)
            raise
        except DueqError as error:
            self._complete([error] * len(self._outcome), error)
            raise
        self._complete(rows_of(value), None)
        return value

    def _again(
        self, retry: Callable[[float | None], Any], rows_of: Callable[[Any], Sequence[Any]]
    ) -> Callable[[float | None], Any]:
        def again(timeout: float | None = None) -> Any:
            if "refused" in self._outcome:
                # From now on they may happen, whether or not anybody is left to write that they did.
                self._outcome = ["unknown" if told == "refused" else told for told in self._outcome]
                self._complete((), None)
            return self.carry_out(lambda: retry(timeout), rows_of)

        return again

    def _complete(self, rows: Sequence[Any], error: DueqError | None) -> None:
        for row, found in enumerate(rows):
            self._note(row, found)
        columns: dict[str, Any] = {"id": self._ids} if self._insert else {}
        if any(outcome != "done" for outcome in self._outcome):
            columns["outcome"] = self._outcome
        if error is not None:
            columns["error"] = f"{type(error).__name__}: {error}"[:300]
        self._recorder.complete(self._client, self._number, **columns)

    def _note(self, row: int, found: Any) -> None:
        before = self._outcome[row]
        if before in _FINAL:
            return  # a retry repeats only what is open
        if isinstance(found, str):
            self._ids[row] = found
            self._outcome[row] = "done"
        elif isinstance(found, Outcome):
            self._outcome[row] = found.name.lower()
        elif isinstance(found, MessageLeased):
            self._outcome[row] = "leased"
        elif isinstance(found, MessageNotFound):
            self._outcome[row] = "not_found"
        elif isinstance(found, OutcomeUnknown):
            self._outcome[row] = "unknown"
        # Any other error says that this attempt changed nothing; of an earlier one it says nothing.


class RecordedProducer:
    """A producer that records. Thread-safe as the producer is.

    Calls raise as `dueq.Producer` does; the `retry` of what they raise is recorded as well.

    Args:
        recorder: where to.
        producer: whose calls; it stays the caller's to close.
        name: the client's name in the history, its own.
    """

    def __init__(self, recorder: Recorder, producer: Producer, name: str) -> None:
        self._recorder, self._producer, self.name = recorder, producer, name

    def schedule(self, payload: bytes, due: int, *, timeout: float | None = None) -> str:
        """Schedule one message; `due` in Unix ms. Each payload should be the only one of its kind."""
        call = self._inserting([payload], [due])
        return call.carry_out(
            lambda: self._producer.schedule(payload, due, timeout=timeout), lambda found: [found]
        )

    def schedule_many(
        self,
        payloads: Sequence[bytes],
        dues: int | Sequence[int],
        *,
        timeout: float | None = None,
        **more: Any,
    ) -> list[str]:
        """Schedule many messages; dues in Unix ms, one for all or one each. More goes to the producer unrecorded."""
        columns = [dues] * len(payloads) if isinstance(dues, int) else list(dues)
        call = self._inserting(payloads, columns)
        return call.carry_out(
            lambda: self._producer.schedule_many(payloads, columns, timeout=timeout, **more), list
        )

    def move(self, message_id: str, due: int, *, timeout: float | None = None) -> None:
        """Move one message to another instant, Unix ms."""
        call = self._altering(Kind.MOVE, [message_id], due=due)
        call.carry_out(lambda: self._producer.move(message_id, due, timeout=timeout), _done)

    def move_many(
        self, message_ids: Sequence[str], dues: int | Sequence[int], *, timeout: float | None = None
    ) -> list[Outcome]:
        """Move many messages; dues in Unix ms, one for all or one each."""
        due = dues if isinstance(dues, int) else list(dues)
        call = self._altering(Kind.MOVE, message_ids, due=due)
        return call.carry_out(lambda: self._producer.move_many(message_ids, due, timeout=timeout), list)

    def cancel(self, message_id: str, *, timeout: float | None = None) -> None:
        """Cancel one message."""
        call = self._altering(Kind.CANCEL, [message_id])
        call.carry_out(lambda: self._producer.cancel(message_id, timeout=timeout), _done)

    def cancel_many(self, message_ids: Sequence[str], *, timeout: float | None = None) -> list[Outcome]:
        """Cancel many messages."""
        call = self._altering(Kind.CANCEL, message_ids)
        return call.carry_out(lambda: self._producer.cancel_many(message_ids, timeout=timeout), list)

    def _inserting(self, payloads: Sequence[bytes], dues: list[int]) -> _Call:
        return _Call(
            self._recorder, self.name, Kind.SCHEDULE, len(payloads), topic=self._producer.topic, due=dues,
            crc=[crc32(payload) for payload in payloads], size=[len(payload) for payload in payloads],
        )  # fmt: skip

    def _altering(self, kind: Kind, message_ids: Sequence[str], **columns: Any) -> _Call:
        return _Call(self._recorder, self.name, kind, len(message_ids), id=list(message_ids), **columns)


class RecordedConsumer:
    """A consumer that records; use it as a context manager, or `close` it. For one thread, as the consumer is.

    Settle messages through it, not through their own methods: what is not recorded did not happen.

    Args:
        recorder: where to.
        consumer: whose deliveries; closed together with this. Its `on_lease_lost` is still called.
        name: the client's name in the history, its own.
    """

    def __init__(self, recorder: Recorder, consumer: Consumer, name: str) -> None:
        self._recorder, self._consumer, self.name = recorder, consumer, name
        self._on_lease_lost = consumer.on_lease_lost
        consumer.on_lease_lost = self._lost
        self._closed = False

    def __enter__(self) -> Self:
        self._consumer.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def receive(self, max_messages: int = 100, timeout: float | None = None) -> list[Message]:
        """Receive as `dueq.Consumer.receive`."""
        operation = self._recorder.invoke(self.name, Kind.RECEIVE, topic=self._consumer.topic)
        try:
            messages = self._consumer.receive(max_messages, timeout)
        except DueqError as error:
            self._recorder.complete(self.name, operation, error=f"{type(error).__name__}: {error}"[:300])
            raise
        self._recorder.complete(self.name, operation, **(_delivered(messages) if messages else {}))
        return messages

    def ack(self, batch: Iterable[Message], *, timeout: float | None = None) -> list[Outcome]:
        """Acknowledge and wait for the answer; raises as `dueq.Consumer.ack`."""
        messages = list(batch)
        return self._settle(Kind.ACK, messages, lambda: self._consumer.ack(messages, timeout=timeout))

    def nack(
        self, batch: Iterable[Message], *, delay: float = 0.0, timeout: float | None = None
    ) -> list[Outcome]:
        """Have messages delivered again after `delay` seconds."""
        messages = list(batch)
        return self._settle(
            Kind.NACK, messages, lambda: self._consumer.nack(messages, delay=delay, timeout=timeout),
            ms=int(delay * 1000),
        )  # fmt: skip

    def release(self, batch: Iterable[Message], *, timeout: float | None = None) -> list[Outcome]:
        """Give messages back uncounted."""
        messages = list(batch)
        return self._settle(Kind.RELEASE, messages, lambda: self._consumer.release(messages, timeout=timeout))

    def extend(
        self, batch: Iterable[Message], seconds: float, *, timeout: float | None = None
    ) -> list[Outcome]:
        """Let leases end `seconds` from now."""
        messages = list(batch)
        return self._settle(
            Kind.EXTEND, messages, lambda: self._consumer.extend(messages, seconds, timeout=timeout),
            ms=int(seconds * 1000),
        )  # fmt: skip

    def close(self) -> None:
        """Give everything back and close the consumer; twice is once."""
        if self._closed:
            return
        self._closed = True
        operation = self._recorder.invoke(self.name, Kind.CLOSE)
        self._consumer.close()
        self._recorder.complete(self.name, operation)

    def _settle(
        self, kind: Kind, messages: Sequence[Message], settle: Callable[[], list[Outcome]], **columns: Any
    ) -> list[Outcome]:
        if not messages:
            return []
        ids, tokens = [message.id for message in messages], [message.token for message in messages]
        call = _Call(self._recorder, self.name, kind, len(messages), id=ids, token=tokens, **columns)
        return call.carry_out(settle, list)

    def _lost(self, message: Message) -> None:
        self._recorder.lost(self.name, [message.id], [message.token])
        if self._on_lease_lost is not None:
            self._on_lease_lost(message)


def _delivered(messages: Sequence[Message]) -> dict[str, Any]:
    return {
        "id": [message.id for message in messages],
        "due": [message.due for message in messages],
        "token": [message.token for message in messages],
        "attempt": [message.attempt for message in messages],
        # Whole µs again: `lateness` is the exact difference up to its rounding, and never below zero by it.
        "released": [message.due * 1000 + round(message.lateness * 1e6) for message in messages],
        "lease_ms": [int(message.lease * 1000) for message in messages],
        "crc": [crc32(message.payload) for message in messages],
        "size": [len(message.payload) for message in messages],
    }


def _done(_: None) -> list[Outcome]:
    return [Outcome.DONE]
