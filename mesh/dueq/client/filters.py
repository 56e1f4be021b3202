"""Which messages of a topic a pass is about, or a count."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from dueq.client import times
from dueq.client.arguments import one_of
from dueq.client.jobs import Job, JobInfo
from dueq.errors import InvalidRequest
from dueq_codecs.groups import GroupRefused, check_group
from dueq_codecs.meta import KEY_BYTES_MAX

STATES: Final = ("waiting", "dead")
_JOB_KEY: Final = re.compile("[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Filter:
    """Messages that are all of these; what is None does not matter.

    Attributes:
        job: what `begin_job` or `job` has returned, or its key, 32 hex digits. It must be committed.
        key_prefix: how their keys begin, at most 255 bytes of UTF-8. Every key is read: this takes its time.
        group: their group, or one above it: "acme" is "acme.reports" too.
        due_from, due_until: due at an instant with due_from ≤ instant < due_until: Unix ms or aware datetimes.
        state: "waiting" or "dead".

    Raises:
        InvalidRequest: a value is not one of these.
    """

    job: Job | JobInfo | str | None = None
    key_prefix: str | None = None
    group: str | None = None
    due_from: int | datetime | None = None
    due_until: int | datetime | None = None
    state: str = "waiting"

    def __post_init__(self) -> None:
        self.document()

    def document(self) -> dict[str, Any]:
        """Return the filter as JSON values, of what matters only."""
        found: dict[str, Any] = {"state": one_of(self.state, "state", STATES)}
        if self.job is not None:
            found["job"] = _job_key(self.job)
        if self.key_prefix is not None:
            found["key_prefix"] = _prefix(self.key_prefix)
        if self.group is not None:
            found["group"] = _group(self.group)
        for name in ("due_from", "due_until"):
            instant = getattr(self, name)
            if instant is not None:
                found[name] = times.instant_ms(instant, name)
        begin, end = found.get("due_from", 0), found.get("due_until")
        if end is not None and end < begin:
            raise InvalidRequest(f"due_until is {end}, before due_from, which is {begin}")
        return found


def filter_document(wanted: object) -> dict[str, Any]:
    """Return the document of a filter.

    Raises:
        InvalidRequest: it is none.
    """
    if not isinstance(wanted, Filter):
        raise InvalidRequest(f"a filter is a dueq.Filter, not {wanted!r:.80}")
    return wanted.document()


def _job_key(job: object) -> str:
    key = job.key.hex() if isinstance(job, Job) else job.key if isinstance(job, JobInfo) else job
    if not isinstance(key, str) or not _JOB_KEY.fullmatch(key):
        raise InvalidRequest(f"job is a Job, a JobInfo or a key of 32 hex digits, not {job!r:.80}")
    return key


def _prefix(prefix: object) -> str:
    if not isinstance(prefix, str) or not 1 <= len(prefix.encode(errors="replace")) <= KEY_BYTES_MAX:
        raise InvalidRequest(f"key_prefix is a str of 1 to {KEY_BYTES_MAX} bytes, not {prefix!r:.300}")
    try:
        prefix.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"the key_prefix {prefix!r:.80} is not Unicode text: {error.reason}") from None
    return prefix


def _group(group: object) -> str:
    if not isinstance(group, str) or not group:
        raise InvalidRequest(f"group is the name of one, not {group!r:.80}")
    try:
        check_group(group)
    except GroupRefused as refused:
        raise InvalidRequest(str(refused)) from None
    return group
