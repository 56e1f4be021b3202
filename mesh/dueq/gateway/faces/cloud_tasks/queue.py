"""The settings of a queue: the document of the protocol, and the settings and the label of its topic.

The gateway that sends decides about retries: a task ends once both limits of its queue, attempts and time, are reached.
The topic itself has no `max_attempts`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from dueq import TopicInfo, limits
from dueq.gateway import instants
from dueq.gateway.faces.cloud_tasks import wire
from dueq.gateway.faces.cloud_tasks.names import QueueName
from dueq.gateway.faces.cloud_tasks.status import Code, RpcError
from dueq.gateway.faces.cloud_tasks.wire import Part, Shape, State
from dueq_codecs.documents import decode_document
from dueq_codecs.topic_settings import RATE_MAX, RATE_MIN

LABEL: Final = "cloud-tasks"
"""The label of a topic that is a queue: its `Configuration`, as JSON."""
GROUP: Final = "tasks"
"""The group of the topic in which all tasks are: so the leader limits how many are under way at once."""
CONCURRENT_MAX: Final = 1_000_000
ATTEMPTS_MAX: Final = 1_000_000
DAY_MS: Final = 24 * 3600 * 1000


class RateLimits(Part):
    """How fast tasks are sent."""

    max_dispatches_per_second: float | None = None
    max_burst_size: int | None = None
    max_concurrent_dispatches: int | None = None


class RetryConfig(Part):
    """How often, and when, a task is sent again."""

    max_attempts: int | None = None
    max_retry_duration: str | None = None
    min_backoff: str | None = None
    max_backoff: str | None = None
    max_doublings: int | None = None


class Logging(Part):
    """Of which part of the operations a log is kept: it is stored, and has no effect."""

    sampling_ratio: float = 0.0


class QueueDocument(Part):
    """A queue as a request has it."""

    name: str = ""
    app_engine_routing_override: dict[str, Any] | None = None
    http_target: dict[str, Any] | None = None
    rate_limits: RateLimits | None = None
    retry_config: RetryConfig | None = None
    state: int | str | None = None
    purge_time: str | None = None
    stackdriver_logging_config: Logging | None = None


@dataclass(frozen=True, slots=True)
class Retry:
    """When a task that failed is sent again.

    Attributes:
        attempts: how often it is sent at most; -1: without limit.
        duration_ms: it is sent again for so long, though it has been sent so often; 0: no such limit.
        least_ms, most_ms: the first delay, and the longest.
        doublings: after this many steps the delay grows by equal steps.
    """

    attempts: int = 100
    duration_ms: int = 0
    least_ms: int = 100
    most_ms: int = 3_600_000
    doublings: int = 16

    def delay_ms(self, failures: int) -> int:
        """Return how long a task waits after this many failures (1 or more): it doubles, then grows by equal steps.

        The source is the documentation of Cloud Tasks' RetryConfig.
        """
        doubled = min(failures - 1, self.doublings)
        step = self.least_ms << min(doubled, 40)
        return min(step * max(failures - doubled, 1), self.most_ms)

    def exhausted(self, failures: int, tried_ms: int) -> bool:
        """Return whether a task is not sent again: both limits are reached.

        Args:
            failures: how often it has failed.
            tried_ms: how long ago it was sent for the first time.
        """
        if self.attempts < 0:
            return bool(self.duration_ms) and tried_ms >= self.duration_ms
        return failures >= self.attempts and (not self.duration_ms or tried_ms >= self.duration_ms)


@dataclass(frozen=True, slots=True)
class Configuration:
    """All that a queue is set to."""

    rate: float = 500.0
    concurrent: int = 1000
    retry: Retry = Retry()
    sampling: float | None = None
    purged_ms: int = 0

    @classmethod
    def of(cls, info: TopicInfo) -> Configuration:
        """Return what a topic that is a queue is set to."""
        try:
            found: Mapping[str, Any] = decode_document(info.labels[LABEL])
            return _sound(cls(**{**found, "retry": Retry(**found["retry"])}))
        except (KeyError, TypeError, ValueError):
            raise RpcError(
                Code.FAILED_PRECONDITION,
                f"the label {LABEL} of topic {info.name} does not say what a queue is set to",
            ) from None

    def label(self) -> str:
        """Return it as the topic's label."""
        return json.dumps(asdict(self), separators=(",", ":"))

    def purged(self, at_ms: int) -> Configuration:
        """Return it with the instant of the last purge, Unix ms."""
        return replace(self, purged_ms=at_ms)

    @property
    def per_second(self) -> float:
        """The topic's rate: it counts in thousandths."""
        return max(round(self.rate, 3), RATE_MIN)

    @property
    def burst(self) -> int:
        """How many tasks are sent at once: the API says it, and does not let it be set."""
        return max(1, math.ceil(self.rate / 5))

    def changed(self, given: QueueDocument, paths: Iterable[str]) -> Configuration:
        """Return it with the named fields as a document has them.

        Args:
            given: the document; missing fields are as in a new queue.
            paths: such as `rate_limits`, `retry_config.max_attempts`.

        Raises:
            RpcError: INVALID_ARGUMENT: there is no such field, or a value is outside its limits.
        """
        found = self
        for path in paths:
            change = _FIELDS.get(path)
            if change is None:
                raise RpcError(
                    Code.INVALID_ARGUMENT, f"a queue has no field {path!r:.80} that can be changed"
                )
            found = change(found, given)
        return found


def checked(given: QueueDocument) -> QueueDocument:
    """Refuse what is not sent here.

    Raises:
        RpcError: UNIMPLEMENTED.
    """
    if given.app_engine_routing_override or given.http_target:
        field = "appEngineRoutingOverride" if given.app_engine_routing_override else "httpTarget"
        raise RpcError(Code.UNIMPLEMENTED, f"{field} is not implemented: each task has its own httpRequest")
    return given


ALL: Final = ("rate_limits", "retry_config", "stackdriver_logging_config")


def document(name: QueueName, info: TopicInfo, shape: Shape) -> dict[str, Any]:
    """Return a queue as answers have it."""
    found = Configuration.of(info)
    retry = found.retry
    shown: dict[str, Any] = {
        "name": str(name),
        "rateLimits": {
            "maxDispatchesPerSecond": found.rate,
            "maxBurstSize": found.burst,
            "maxConcurrentDispatches": found.concurrent,
        },
        "retryConfig": {
            "maxAttempts": retry.attempts,
            "minBackoff": wire.duration(retry.least_ms),
            "maxBackoff": wire.duration(retry.most_ms),
            "maxDoublings": retry.doublings,
        },
        "state": shape.enum(State.PAUSED if info.paused else State.RUNNING),
    }
    if retry.duration_ms:
        shown["retryConfig"]["maxRetryDuration"] = wire.duration(retry.duration_ms)
    if found.purged_ms:
        shown["purgeTime"] = instants.text(found.purged_ms)
    if found.sampling is not None:
        shown["stackdriverLoggingConfig"] = {"samplingRatio": found.sampling}
    return shown


def _sound(found: Configuration) -> Configuration:
    """Return it unless somebody else has written a label that only looks like one.

    Raises:
        ValueError: a number is none, or outside its limits.
    """
    retry = found.retry
    bounds = (
        (found.concurrent, 1, CONCURRENT_MAX),
        (found.purged_ms, 0, limits.DUE_MS_MAX),
        (retry.attempts, -1, ATTEMPTS_MAX),
        (retry.duration_ms, 0, 366 * DAY_MS),
        (retry.least_ms, 0, DAY_MS),
        (retry.most_ms, 0, DAY_MS),
        (retry.doublings, 0, 1000),
    )
    numbers = ((found.rate, RATE_MIN, RATE_MAX), (found.sampling or 0.0, 0.0, 1.0))
    if not all(type(value) is int and low <= value <= high for value, low, high in bounds) or not all(
        type(value) in (int, float) and low <= value <= high for value, low, high in numbers
    ):
        raise ValueError("a number is none, or outside its limits")
    return found


# ---------------------------------------------------------------- fields


def _rate(found: Configuration, given: QueueDocument) -> Configuration:
    rate = given.rate_limits.max_dispatches_per_second if given.rate_limits else None
    if rate is None:
        return replace(found, rate=Configuration().rate)
    if not RATE_MIN <= rate <= RATE_MAX:
        raise RpcError(
            Code.INVALID_ARGUMENT, f"maxDispatchesPerSecond is {RATE_MIN} to {RATE_MAX} here, not {rate}"
        )
    return replace(found, rate=float(rate))


def _concurrent(found: Configuration, given: QueueDocument) -> Configuration:
    count = given.rate_limits.max_concurrent_dispatches if given.rate_limits else None
    if count is None:
        return replace(found, concurrent=Configuration().concurrent)
    return replace(found, concurrent=_within("maxConcurrentDispatches", count, 1, CONCURRENT_MAX))


def _attempts(found: Configuration, given: QueueDocument) -> Configuration:
    count = given.retry_config.max_attempts if given.retry_config else None
    if count is None:
        count = Retry().attempts
    if count != -1:
        _within("maxAttempts (or -1: no limit)", count, 1, ATTEMPTS_MAX)
    return replace(found, retry=replace(found.retry, attempts=count))


def _doublings(found: Configuration, given: QueueDocument) -> Configuration:
    count = given.retry_config.max_doublings if given.retry_config else None
    if count is None:
        count = Retry().doublings
    return replace(found, retry=replace(found.retry, doublings=_within("maxDoublings", count, 0, 1000)))


def _duration(found: Configuration, given: QueueDocument) -> Configuration:
    text = given.retry_config.max_retry_duration if given.retry_config else None
    ms = wire.duration_ms(text, "maxRetryDuration", 0, 366 * DAY_MS) if text else 0
    return replace(found, retry=replace(found.retry, duration_ms=ms))


def _backoffs(found: Configuration, given: QueueDocument) -> Configuration:
    """Both at once: which of two is the longer can be said once both are known."""
    config = given.retry_config or RetryConfig()
    retry = found.retry
    if config.min_backoff is not None:
        retry = replace(retry, least_ms=wire.duration_ms(config.min_backoff, "minBackoff", 0, DAY_MS))
    if config.max_backoff is not None:
        retry = replace(retry, most_ms=wire.duration_ms(config.max_backoff, "maxBackoff", 0, DAY_MS))
    if retry.least_ms > retry.most_ms:
        raise RpcError(
            Code.INVALID_ARGUMENT,
            f"minBackoff ({wire.duration(retry.least_ms)}) is at most maxBackoff ({wire.duration(retry.most_ms)})",
        )
    return replace(found, retry=retry)


def _all_retries(found: Configuration, given: QueueDocument) -> Configuration:
    found = replace(found, retry=Retry())
    for change in (_attempts, _doublings, _duration, _backoffs):
        found = change(found, given)
    return found


def _logging(found: Configuration, given: QueueDocument) -> Configuration:
    config = given.stackdriver_logging_config
    if config is None:
        return replace(found, sampling=None)
    if not 0 <= config.sampling_ratio <= 1:
        raise RpcError(Code.INVALID_ARGUMENT, f"samplingRatio is 0 to 1, not {config.sampling_ratio}")
    return replace(found, sampling=config.sampling_ratio)


def _unchanged(found: Configuration, given: QueueDocument) -> Configuration:
    return found


_FIELDS: Final = {
    "name": _unchanged,
    "rate_limits": lambda found, given: _concurrent(_rate(found, given), given),
    "rate_limits.max_dispatches_per_second": _rate,
    "rate_limits.max_concurrent_dispatches": _concurrent,
    "retry_config": _all_retries,
    "retry_config.max_attempts": _attempts,
    "retry_config.max_retry_duration": _duration,
    "retry_config.min_backoff": _backoffs,
    "retry_config.max_backoff": _backoffs,
    "retry_config.max_doublings": _doublings,
    "stackdriver_logging_config": _logging,
    "stackdriver_logging_config.sampling_ratio": _logging,
}


def _within(name: str, value: int, low: int, high: int) -> int:
    if not low <= value <= high:
        raise RpcError(Code.INVALID_ARGUMENT, f"{name} is {low} to {high}, not {value}")
    return value
