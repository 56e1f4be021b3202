"""Everything that dueq raises.

DueqError
├── Refused               the caller can fix it; nothing was changed
│   ├── InvalidRequest        a value is outside its limits (also a ValueError)
│   ├── PayloadTooLarge
│   ├── TopicNotFound
│   ├── TopicExists
│   ├── MessageNotFound       done, cancelled, expired, or never was
│   ├── KeyTaken              a unique key names another message; `.present` is its id, `.due` when it is due
│   ├── RequestDiffers        an idempotency key came with another request before
│   ├── MessageLeased         too late: a consumer holds it
│   ├── VersionDiffers        it was moved or changed since; `.present` is its version
│   ├── StaleLease            the lease ended, or another one followed
│   ├── SequenceReused        one (client id, sequence) with two different contents
│   ├── JobEnded              the job is complete, aborted or cancelled, or its time to commit is over
│   ├── JobNotFound
│   ├── UnknownBody           no partition keeps a shared body of this name any more
│   ├── RecurrenceExists
│   ├── RecurrenceNotFound
│   ├── EndpointNotFound
│   ├── TooManyRecurrences    their home partition has room for no more of them
│   ├── PassExists            its name is that of another pass
│   ├── Superseded            another process of the same name has followed
│   ├── NotAllowed
│   └── ClientClosed
├── Unavailable           a retry can help; nothing was changed
│   ├── Busy                  over a limit just now; `.retry_after` seconds
│   ├── DiskFull
│   ├── NotEnoughReplicas     fewer than min_isr replicas could hold it
│   ├── NotLeader             (the SDK follows it by itself)
│   ├── SnapshotLost          what was being browsed is not kept any more: browse again
│   └── Disconnected          no broker could be reached in time (also a ConnectionError)
├── OutcomeUnknown        it may or may not have happened; `.retry()` finds out (also a TimeoutError)
├── PartialFailure        some runs of a long call failed; `.outcomes`, `.retry()`
└── Broken                corruption or a bug: the partition or broker stops and keeps the evidence
    ├── InvariantViolated
    ├── StoreDamaged
    └── UnknownVersion
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

E = TypeVar("E", bound="DueqError")


class DueqError(Exception):
    """The root of everything that dueq raises.

    Attributes:
        retriable: whether the same request can succeed later without being changed.
    """

    retriable = False


class Refused(DueqError):
    """The request was refused and changed nothing; the caller can mend it."""


class InvalidRequest(Refused, ValueError):
    """A value is outside its limits; the text names the value and the limit."""


class PayloadTooLarge(Refused):
    """A payload is longer than its topic allows; nothing was stored."""


class TopicNotFound(Refused):
    """There is no topic of this name."""


class TopicExists(Refused):
    """A topic of this name exists already."""


class MessageNotFound(Refused):
    """The message is done, cancelled or expired, or never was."""


class KeyTaken(Refused):
    """A unique key names another message already, or one that was finished lately.

    Attributes:
        present: id of that message; None: it belongs to a job that is not committed yet.
        due: when it is (or was) due, Unix ms.
    """

    def __init__(self, text: str, present: str | None = None, due: int = 0) -> None:
        super().__init__(text)
        self.present, self.due = present, due


class RequestDiffers(Refused):
    """The idempotency key came with another request before."""


class MessageLeased(Refused):
    """Too late: the message is with a consumer."""


class VersionDiffers(Refused):
    """The message, endpoint or topic has another version than the one that was expected; nothing was changed.

    Attributes:
        present: the version that it has, asked for after the refusal.
    """

    def __init__(self, text: str, present: int = 0) -> None:
        super().__init__(text)
        self.present = present


class StaleLease(Refused):
    """The lease is over, or another one has followed it; nothing was changed.

    Attributes:
        outcomes: of a call for several messages, one `Outcome` each: those that are DONE are settled all the same.
    """

    def __init__(self, text: str, outcomes: Sequence[Any] = ()) -> None:
        super().__init__(text)
        self.outcomes = list(outcomes)


class SequenceReused(Refused):
    """One (client id, sequence) was used for two different requests."""


class JobEnded(Refused):
    """The job has ended in another way: committed, aborted or cancelled, or its time to be committed is over."""


class JobNotFound(Refused):
    """Nothing is known of a job of this name, or not any more."""


class UnknownBody(Refused):
    """The partition has no shared body of this name, or not any more."""


class RecurrenceExists(Refused):
    """There is a recurrence of this name in the topic already."""


class RecurrenceNotFound(Refused):
    """The topic has no recurrence of this name."""


class EndpointNotFound(Refused):
    """There is no endpoint of this name."""


class TooManyRecurrences(Refused):
    """The partition where the recurrence would be at home has room for no more of them, or of their payloads."""


class PassExists(Refused):
    """There is a pass of this name in the topic that does something else."""


class NotAllowed(Refused):
    """The principal of this session may not do this."""


class Superseded(Refused):
    """Another consumer, or another pull, of the same name has followed."""


class ClientClosed(Refused):
    """The client, producer or consumer has been closed."""


class Unavailable(DueqError):
    """The mesh could not serve the request just now; nothing was changed and a retry can help."""

    retriable = True


class Busy(Unavailable):
    """The mesh is over one of its limits.

    Attributes:
        retry_after: seconds after which a retry is worth while.
    """

    def __init__(self, text: str, retry_after: float = 0.1) -> None:
        super().__init__(text)
        self.retry_after = retry_after


class DiskFull(Unavailable):
    """The brokers' disks, or their stores in memory, are nearly full: no inserts; acks and cancels go on."""


class NotEnoughReplicas(Unavailable):
    """Fewer than `min_isr` replicas could hold the record."""


class NotLeader(Unavailable):
    """The broker asked does not lead the partition."""


class SnapshotLost(Unavailable):
    """The snapshot that was being browsed is gone: its leader is, or it was not read for 30 seconds.

    The pages so far are right. The rest is not read from another snapshot, since both together would be the state of
    no instant; browsing again from the beginning can help.
    """


class Disconnected(Unavailable, ConnectionError):
    """No broker that could serve the request was reached in time."""


class OutcomeUnknown(DueqError, TimeoutError):
    """The request may or may not have taken effect.

    `retry()` repeats exactly the same request; within 15 minutes it takes effect at most once. In another process than
    the client's it raises `ClientClosed`.
    """

    retriable = True

    def __init__(self, text: str, retry: Callable[..., Any] | None = None) -> None:
        super().__init__(text)
        self._retry = retry

    def __copy__(self) -> OutcomeUnknown:
        return _with_state(OutcomeUnknown(str(self), self._retry), self)

    def __deepcopy__(self, memo: object) -> OutcomeUnknown:
        return self.__copy__()  # it stays in this process: with its retry

    def __reduce__(self) -> tuple[Any, ...]:
        return OutcomeUnknown, (str(self),), _state(self)

    def retry(self, timeout: float | None = None) -> Any:
        """Repeat the same request and return what the first attempt would have returned.

        Args:
            timeout: seconds; None for the client's default.

        Raises:
            DueqError: as the first attempt would.
        """
        if self._retry is None:
            raise ClientClosed("the request cannot be repeated: it was not sent by this client")
        return self._retry(timeout)


class NotYetApplied(DueqError):
    """A change of a topic is stored, and some partitions have not applied it yet; each does once it has a leader again.

    Attributes:
        partitions: their places in the topic.
    """

    retriable = True

    def __init__(self, topic: str, version: int, partitions: Sequence[int], why: str) -> None:
        named = ", ".join(map(str, partitions))
        super().__init__(
            f"version {version} of the settings of topic {topic!r} is stored; partitions {named} have not applied it "
            f"yet, and will when they have a leader: {why}"
        )
        self.partitions = list(partitions)
        self._told = topic, version, self.partitions, why

    def __reduce__(self) -> tuple[Any, ...]:
        return NotYetApplied, self._told, _state(self)


class PartialFailure(DueqError):
    """Some runs of a long call failed.

    Attributes:
        outcomes: one entry per row of the call: the message id (or Outcome) where it succeeded,
            the DueqError where it did not.
    """

    retriable = True

    def __init__(self, text: str, outcomes: Sequence[Any], retry: Callable[..., Any] | None = None) -> None:
        super().__init__(text)
        self.outcomes = outcomes
        self._retry = retry

    def __copy__(self) -> PartialFailure:
        return _with_state(PartialFailure(str(self), self.outcomes, self._retry), self)

    def __deepcopy__(self, memo: object) -> PartialFailure:
        return _with_state(PartialFailure(str(self), list(self.outcomes), self._retry), self)

    def __reduce__(self) -> tuple[Any, ...]:
        retry = None if self._retry is None else _retried_elsewhere
        return PartialFailure, (str(self), self.outcomes, retry), _state(self)

    def retry(self, timeout: float | None = None) -> Any:
        """Repeat exactly the requests that failed; returns what the whole call would have returned.

        Rows that were refused, since their unique keys are taken, are not repeated: their error is raised again. In
        another process than the client's nothing is repeated: ClientClosed.
        """
        if self._retry is None:
            raise next(outcome for outcome in self.outcomes if isinstance(outcome, DueqError))
        return self._retry(timeout)


class SecretsSealed(DueqError):
    """The secrets of an endpoint are sealed, and the key that opens them is not here."""


class Broken(DueqError):
    """Corruption or a bug: the affected part stops, and the evidence is kept."""


class InvariantViolated(Broken):
    """Something that must never happen did."""


class StoreDamaged(Broken):
    """A store lacks data that it must hold. It is set aside, and never repaired in place."""


class UnknownVersion(Broken):
    """A record, frame or store is of a version that this build does not know."""


def _state(error: DueqError) -> dict[str, Any]:
    """Return what pickle takes along of an error: not its retry, which is the client's of this process."""
    return {name: value for name, value in vars(error).items() if name != "_retry"}


def _with_state(copied: E, error: E) -> E:
    vars(copied).update(_state(error))
    return copied


def _retried_elsewhere(timeout: float | None) -> Any:
    raise ClientClosed("the requests cannot be repeated: they were not sent by this client")


def invariant(condition: bool, message: str, **fields: object) -> None:
    """Raise InvariantViolated with the story unless `condition` holds (also under `python -O`)."""
    if not condition:
        story = ", ".join(f"{name}={value!r}" for name, value in fields.items())
        raise InvariantViolated(f"{message} ({story})" if story else message)
