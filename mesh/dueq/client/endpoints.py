"""Endpoints: where gateways send the messages of a topic; what callers say about them, and the calls that follow.

An endpoint lies among the settings of its topic. A change reads it with its secrets, and stores it again if the
settings are still of the version that was read. So of two changes at once both take effect.
"""

from __future__ import annotations

import json
import os
import secrets as chance
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from operator import itemgetter
from typing import Any, Final, NamedTuple

from dueq.client import arguments, times, topic_changes
from dueq.client.backoff import Backoff, backoff_document
from dueq.client.calls import Call, Steps
from dueq.client.core.asking.inspecting import Inspection
from dueq.client.core.ports import events
from dueq.client.times import Seconds
from dueq.errors import (
    DueqError,
    EndpointNotFound,
    InvalidRequest,
    NotYetApplied,
    OutcomeUnknown,
    VersionDiffers,
)
from dueq_codecs.endpoint import (
    DISABLED_MAX,
    IN_FLIGHT_MAX,
    SECRETS_MAX,
    TIMEOUT_MS,
    all_sealed,
    fault_of_endpoint,
    key_of,
    secret_id,
    shown,
)
from dueq_codecs.meta import MetaRefused, packed_headers
from dueq_codecs.topic_settings import AS_CREATED, TopicSettings, decode_settings

Document = Mapping[str, Any]

DEFAULT_TIMEOUT_S: Final = 15.0
DEFAULT_IN_FLIGHT: Final = 64
DEFAULT_BACKOFF: Final = Backoff(first=5.0, factor=4.0, longest=6 * 3600.0, jitter=0.2)
"""Of a topic that gets an endpoint and has no back-off: otherwise a failing receiver would be asked without end."""
GRACE_S: Final = 24 * 3600.0
"""How long messages are signed with a secret beside the one that has followed it."""
PRESENT: Final = -1
"""In place of a version that an endpoint must have: any, but it must be there."""


@dataclass(frozen=True, slots=True)
class EndpointInfo:
    """An endpoint: where gateways send the messages of a topic.

    Attributes:
        name: unique in the mesh, unless two topics get theirs at the same moment.
        topic: whose messages are sent.
        version: grows with each change of the endpoint.
        url: where to.
        timeout: seconds that a receiver gets for its answer.
        max_in_flight: requests of one gateway at a time.
        headers: names of the headers that every request carries; their values are not shown.
        filter: a message is sent if, for each name here, its header has one of the values.
        secrets: an id of each secret, or the public key (`whpk_…`) of a private one, and until when it is used; None:
            for good. The first is the newest.
        targets: messages may name URLs of their own (`Target`).
        disabled: why nothing is sent any more; "" if the endpoint is in use.
        paused: the topic delivers nothing.
        paused_until: when that ends by itself; None: it is not paused, or it ends by `resume_endpoint`.
        sealed: its secrets are stored so that only who has the key of brokers and gateways can read them.
    """

    name: str
    topic: str
    version: int
    url: str
    timeout: float
    max_in_flight: int
    headers: tuple[str, ...]
    filter: dict[str, list[str]]
    secrets: tuple[tuple[str, datetime | None], ...]
    targets: bool
    disabled: str
    paused: bool
    paused_until: datetime | None
    sealed: bool


@dataclass(frozen=True, slots=True)
class StoredEndpoint:
    """An endpoint with its secrets, and what its topic's settings say besides.

    Attributes:
        topic: its name.
        settings_version: of the topic's settings.
        paused, paused_until_ms: as the settings have them.
        document: of the endpoint, see `dueq_codecs.endpoint`.
        agreed: all brokers that are known have answered, and told this document.
    """

    topic: str
    settings_version: int
    paused: bool
    paused_until_ms: int
    document: Document = field(repr=False)
    agreed: bool = True

    @property
    def name(self) -> str:
        """The endpoint's name."""
        name: str = self.document["name"]
        return name

    @property
    def version(self) -> int:
        """The endpoint's version."""
        version: int = self.document["version"]
        return version

    def info(self) -> EndpointInfo:
        """Return what callers see: no secrets."""
        found = shown(self.document)
        until_ms = self.paused_until_ms
        return EndpointInfo(
            self.name,
            self.topic,
            self.version,
            found["url"],
            found["timeout_ms"] / 1000,
            found["in_flight"],
            tuple(found["header_names"]),
            {name: list(words) for name, words in found["filter"].items()},
            tuple((each, _instant(until)) for each, until in found["secret_ids"]),
            found["targets"],
            found["disabled"],
            self.paused,
            _instant(until_ms) if self.paused else None,
            all_sealed(self.document),
        )


class Made(NamedTuple):
    """What a change has made.

    Attributes:
        info: the endpoint as it was sent to be stored: brokers may seal its secrets after that.
        secret: that was made for it, "" if none was.
    """

    info: EndpointInfo
    secret: str


def _instant(ms: int) -> datetime | None:
    return times.moment(ms) if ms else None


@dataclass(frozen=True, slots=True)
class Page:
    """Some endpoints by topic, and the topic after which to read on; "": these were the last."""

    endpoints: list[StoredEndpoint]
    after: str


def page(after: str = "") -> Call[Page]:
    """Read the endpoints of the next topics after a name, with their secrets."""

    def finish(found: Inspection) -> Page:
        told: dict[str, list[tuple[tuple[int, int], StoredEndpoint]]] = {}
        ends = []
        for text in found.documents.values():
            part = json.loads(text)
            for row in part["endpoints"]:
                each = StoredEndpoint(
                    row["topic"], row["version"], row["paused"], row["paused_until_ms"], row["endpoint"]
                )
                # Versions begin anew with a topic that is made again; uids grow. Older builds do not tell them.
                age = row.get("uid", 0), each.settings_version
                told.setdefault(each.topic, []).append((age, each))
            if part["more"]:
                ends.append(part["endpoints"][-1]["topic"])
        # Behind the end of one broker's part there may be more that it knows of.
        end = min(ends, default="")
        topics = [topic for topic in sorted(told) if not end or topic <= end]
        return Page([_newest(told[topic], len(found.endpoints)) for topic in topics], end)

    return Call(lambda call, at: events.Inspect(call, at, f"endpoints {after}"), finish)


def _newest(told: Sequence[tuple[tuple[int, int], StoredEndpoint]], brokers: int) -> StoredEndpoint:
    """Return the newest of what so many brokers tell of one endpoint, each with its age."""
    _, newest = max(told, key=itemgetter(0))
    same = [each for _, each in told if each.document == newest.document]
    return replace(newest, agreed=len(same) == brokers)


def every() -> Steps[list[StoredEndpoint]]:
    """Read all endpoints, by topic."""
    found: list[StoredEndpoint] = []
    after = ""
    while True:
        part: Page = yield page(after)
        found += part.endpoints
        if not part.after:
            return found
        after = part.after


def find(name: str) -> Steps[StoredEndpoint]:
    """Return the endpoint of a name.

    Raises:
        EndpointNotFound: there is none.
    """
    for each in (yield from every()):
        if each.name == name:
            return each
    raise EndpointNotFound(f"there is no endpoint {name!r:.80}")


def infos() -> Steps[list[EndpointInfo]]:
    """Return all endpoints as callers see them, by name."""
    found = yield from every()
    return sorted((each.info() for each in found), key=lambda info: info.name)


def info(name: str) -> Steps[EndpointInfo]:
    """Return one as callers see it."""
    found = yield from find(name)
    return found.info()


# ---------------------------------------------------------------- changes


def put(
    name: str,
    topic: str,
    url: str,
    secrets: Sequence[str] | None,
    timeout: Seconds,
    max_in_flight: int,
    headers: Mapping[str, str] | None,
    matching: Mapping[str, str | Sequence[str]] | None,
    targets: bool,
    backoff: Backoff | None,
    if_version: int | None,
) -> Steps[Made]:
    """Create an endpoint, or change one."""
    wanted = {
        "name": name,
        "url": url,
        "timeout_ms": times.duration_ms(timeout, "the time-out of an endpoint", *TIMEOUT_MS),
        "in_flight": arguments.count(max_in_flight, "max_in_flight", 1, IN_FLIGHT_MAX),
        "headers": dict(_mapping(headers, "headers")),
        "filter": _filter(matching),
        "targets": targets,
    }
    given = (
        None if secrets is None else [[_own(secret), 0] for secret in arguments.rows_of(secrets, "secrets")]
    )
    if if_version is not None:
        arguments.count(if_version, "if_version", PRESENT, 1 << 62)
    changes: dict[str, Any] = {} if backoff is None else {"backoff": backoff_document(backoff)}
    _check({**wanted, "version": 1, "disabled": "", "secrets": given or [[new_secret(), 0]]})
    made = ""
    while True:
        settings: TopicSettings = yield _settings(topic)
        version, before = settings.version, settings.endpoint
        if before is not None:
            stored = yield from _of_topic(topic)
            if stored is None:
                continue
            if _among(made, stored.document["secrets"]):  # the last attempt was stored, and others followed
                return Made(stored.info(), made)
            if stored.name != name:
                raise InvalidRequest(f"topic {topic!r} has the endpoint {stored.name!r} already")
            version, before = stored.settings_version, stored.document
        _expect(name, before["version"] if before is not None else 0, if_version)
        if backoff is None and settings.backoff is None:
            changes["backoff"] = DEFAULT_BACKOFF.document()
        kept = given or (before["secrets"] if before is not None else None)
        if kept is None:
            made = made or new_secret()
            kept = [[made, 0]]
        else:
            made = ""  # somebody else has created it since the last attempt, with another secret
        # An endpoint that was deleted had no later version than the settings have.
        number = (before["version"] if before is not None else version) + 1
        document = {**wanted, "version": number, "disabled": "", "secrets": kept}
        if before is not None:
            document["disabled"] = before["disabled"]
        if (yield from _stored_with(made, topic, {**changes, "endpoint": document}, version)):
            info = StoredEndpoint(topic, version, settings.paused, settings.paused_until_ms, document).info()
            return Made(info, made)


def rotate(name: str, secret: str | None, grace: Seconds, now_ms: int) -> Steps[Made]:
    """Sign with a new secret, and for a while with the present ones too."""
    grace_ms = times.duration_ms(grace, "grace", 0, 366 * 24 * 3600 * 1000)
    made = new_secret() if secret is None else ""
    newest = made if secret is None else _own(secret)

    def edit(document: Document) -> dict[str, Any]:
        until = now_ms + grace_ms
        old = [
            [each, min(end or until, until)]
            for each, end in document["secrets"]
            if secret_id(each) != secret_id(newest)
        ]
        used = [[each, end] for each, end in old if end > now_ms]
        return {"secrets": [[newest, 0], *used[: SECRETS_MAX - 1]]}

    changed = yield from _changed(name, edit, made=made)
    return Made(changed.info(), made)


def resume(name: str) -> Steps[None]:
    """Send again: an endpoint that was disabled is in use, and its topic is not paused any more."""
    yield from _changed(name, lambda document: {"disabled": ""}, topic_changes.RESUMED)


def pause(name: str, until_ms: int) -> Steps[None]:
    """Pause the topic of an endpoint."""
    found = yield from find(name)
    yield from topic_changes.change(found.topic, topic_changes.paused(until_ms))


def delete(name: str, if_version: int | None) -> Steps[None]:
    """Send nothing more; the topic and its messages stay."""
    while True:
        found = yield from find(name)
        _expect(name, found.version, if_version)
        if (yield from _stored(found.topic, {"endpoint": None}, found.settings_version)):
            return


def disable(used: StoredEndpoint, reason: str) -> Steps[bool]:
    """Disable an endpoint and pause its topic, unless it was changed meanwhile; returns whether it was not."""
    while True:
        found = yield from _of_topic(used.topic)
        # Versions begin anew with a topic that is deleted and made again.
        same = ("name", "version", "url")
        if found is None or any(found.document[each] != used.document[each] for each in same):
            return False
        document = {
            **found.document,
            "version": found.version + 1,
            "disabled": reason[:DISABLED_MAX],
        }
        changes = {"endpoint": document, **topic_changes.paused(0)}
        if (yield from _stored(found.topic, changes, found.settings_version)):
            return True


def hold(used: StoredEndpoint, until_ms: int) -> Steps[int | None]:
    """Pause the topic of an endpoint until an instant, unless it is paused for longer.

    Returns:
        Until when it is paused, 0: for good; None: its messages go to this URL no longer, so nothing was done.
    """
    while True:
        settings: TopicSettings = yield _settings(used.topic)
        if settings.endpoint is None or settings.endpoint["url"] != used.document["url"]:
            return None
        present_ms = settings.paused_until_ms
        if settings.paused and (not present_ms or present_ms >= until_ms):
            return present_ms
        update_id = os.urandom(16)
        changes = topic_changes.paused(until_ms)
        standing = yield topic_changes.store(used.topic, update_id, changes, if_version=settings.version)
        if standing["update"] == update_id.hex():
            return until_ms


def seal() -> Steps[list[str]]:
    """Store all endpoints again, so that brokers seal their secrets by the newest key; returns the names."""
    found = yield from every()
    for each in found:
        yield from _changed(each.name, lambda document: {})
    return [each.name for each in found]


def _own(secret: str) -> str:
    """Return a secret that a caller gives.

    Raises:
        InvalidRequest: it is none.
    """
    try:
        key_of(secret)
    except ValueError as error:
        raise InvalidRequest(str(error)) from None
    return secret


def new_secret() -> str:
    """Return a new secret of 32 bytes."""
    return "whsec_" + b64encode(chance.token_bytes(32)).decode()


def _expect(name: str, present: int, wanted: int | None) -> None:
    if wanted is None or present == wanted or (wanted == PRESENT and present):
        return
    has = f"has version {present}" if present else "is not there"
    expected = "one" if wanted == PRESENT else f"version {wanted}"
    raise VersionDiffers(f"endpoint {name!r} {has}, and {expected} was expected", present)


def _changed(
    name: str,
    edit: Callable[[Document], Document],
    settings: Mapping[str, Any] | None = None,
    made: str = "",
) -> Steps[StoredEndpoint]:
    while True:
        found = yield from find(name)
        document = {**found.document, **edit(found.document), "version": found.version + 1}
        changes = {**(settings or {}), "endpoint": document}
        if (yield from _stored_with(made, found.topic, changes, found.settings_version)):
            return replace(found, document=document)


def _stored_with(made: str, topic: str, changes: Document, version: int) -> Steps[bool]:
    """Store changes as `_stored` does; with a secret that was made, an error is only raised if it may not be stored.

    An error would hide the secret, which is never shown again.
    """
    try:
        return (yield from _stored(topic, changes, version))
    except NotYetApplied:
        if not made:
            raise
        return True
    except OutcomeUnknown:
        if not made or not (yield from _is_stored(topic, made)):
            raise
        return True


def _is_stored(topic: str, secret: str) -> Steps[bool]:
    """Return whether the endpoint of a topic is known to have a secret."""
    try:
        found = yield from _of_topic(topic)
    except DueqError:
        return False
    return found is not None and _among(secret, found.document["secrets"])


def _among(secret: str, stored: Sequence[Sequence[Any]]) -> bool:
    """Return whether a secret that was made, if one was, is one of those that are stored, sealed or not."""
    return bool(secret) and any(secret_id(each) == secret_id(secret) for each, _ in stored)


def _stored(topic: str, changes: Document, version: int) -> Steps[bool]:
    """Store changes of settings of this version, and wait until they are in force; returns whether they were."""
    update_id = os.urandom(16)
    standing = yield topic_changes.store(topic, update_id, dict(changes), if_version=version)
    if standing["update"] != update_id.hex():
        return False
    yield from topic_changes.await_version(topic, standing)
    return True


def _of_topic(topic: str) -> Steps[StoredEndpoint | None]:
    found = yield from every()
    return next((each for each in found if each.topic == topic), None)


def _settings(topic: str) -> Call[TopicSettings]:
    name = arguments.topic_name(topic)

    def finish(reply: Any) -> TopicSettings:
        (found,) = reply.topics
        return decode_settings(found.settings) if found.settings else AS_CREATED

    return Call(lambda call, at: events.FetchTopics(call, at, name), finish)


def _filter(given: Mapping[str, str | Sequence[str]] | None) -> dict[str, list[str]]:
    for name in _mapping(given, "matching"):
        try:
            packed_headers({name: ""})
        except MetaRefused as refused:  # a message can have no such header: all would be finished unsent
            raise InvalidRequest(f"matching: {refused}") from None
    return {
        name: [words] if isinstance(words, str) else list(arguments.rows_of(words, "values of a header"))
        for name, words in _mapping(given, "matching").items()
    }


def _mapping(given: Any, what: str) -> Mapping[Any, Any]:
    if not isinstance(given or {}, Mapping):
        raise InvalidRequest(f"{what} is a mapping of headers to values, not {given!r:.80}")
    return given or {}


def _check(document: Document) -> None:
    fault = fault_of_endpoint(document)
    if fault is not None:
        raise InvalidRequest(fault)
