"""Topics: the map of them, creating, changing and deleting them, and where their partitions are put."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from dueq import limits
from dueq.core.partition.levels import holding_back, level_needed
from dueq.core.partition.requests import Refusal, invalid
from dueq.core.partition.settings import SETTINGS_LEVEL
from dueq.core.ports.events import Route
from dueq.core.ports.membership import (
    CoordinatorState,
    CreateTopic,
    DeleteTopic,
    Member,
    Registration,
    Topic,
    TopicOrderDone,
    UpdateTopic,
)
from dueq.core.state.order import ORDERS
from dueq.core.turn.context import Context
from dueq_codecs.documents import decode_document
from dueq_codecs.messages import Code, CreateTopicRequest, DeleteTopicRequest, Reply, UpdateTopicRequest
from dueq_codecs.topic_settings import AS_CREATED, SettingsRefused, TopicSettings

_NAME = re.compile(rf"[A-Za-z0-9._-]{{1,{limits.TOPIC_NAME_MAX}}}\Z")
KINDS = tuple(ORDERS)
UNADDRESSABLE = (".", "..")
"""Segments of a path that a client of HTTP resolves before it asks, encoded or not (WHATWG URL, RFC 3986 5.2.4)."""

_CODES = {
    "": Code.OK,
    "exists": Code.TOPIC_EXISTS,
    "not_found": Code.TOPIC_NOT_FOUND,
    "unavailable": Code.COORDINATOR_UNAVAILABLE,
    "unknown": Code.OUTCOME_UNKNOWN,
}


class _Order(NamedTuple):
    """An order under way.

    Attributes:
        answer: what to say of the topic that comes of it.
        exist_ok: a topic that is there already will do.
    """

    route: Route
    request_id: int
    answer: Callable[[Topic], str]
    exist_ok: bool = False


class Topics:
    """All topics as last seen, and the orders under way.

    Attributes:
        by_name: every topic.
        tombstones: uids of deleted partitions.
        registrations: every living broker, this one included.
        version: another one whenever `by_name` is another one, in this life of the broker.
        read: whether the coordinator has been asked yet; before, `by_name` says nothing.
    """

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self.read = False
        self.version = 0
        self.by_name: dict[str, Topic] = {}
        self.tombstones: frozenset[int] = frozenset()
        self.registrations: dict[str, Registration] = {}
        self._orders: dict[int, _Order] = {}
        # Offset of the next topic's first replica: topics that are made at the same time must not all begin at one
        # broker.
        self._offset = 0
        self._counted = True

    def seen(self, topics: dict[str, Topic], tombstones: frozenset[int]) -> list[Topic]:
        """All topics were read again; returns those that are new or have changed."""
        self.read = True
        known, self.by_name = self.by_name, dict(topics)
        self.tombstones = tombstones
        self._counted = False
        changed = [topic for name, topic in topics.items() if known.get(name) is not topic]
        self.version += bool(changed) or len(known) != len(topics)
        return changed

    # -------------------------------------------------------------- creating

    def create(self, route: Route, request: CreateTopicRequest) -> Refusal | None:
        """Order a topic; answered when the coordinator has it."""
        refusal = self._check(request)
        if refusal is not None:
            return refusal
        refusal = self._cannot_create(request)
        if refusal is not None:
            known = self.by_name.get(request.topic)
            if known is None or not (request.exist_ok or known.creation_id == request.creation_id.hex()):
                return refusal
            # A client that starts while topics cannot be created still gets the topic that exists, as known here.
            self._ctx.reply(route, Reply(request.request_id, Code.OK, document=_uids(known)))
            return None
        # Also for a topic that is known here: it may have been deleted since.
        token = self._ctx.new_token()
        self._orders[token] = _Order(route, request.request_id, _uids, request.exist_ok)
        self._ctx.coordinate(self._order(token, request))
        return None

    def _cannot_create(self, request: CreateTopicRequest) -> Refusal | None:
        """Say why no topic can be created just now; None: it can."""
        if self._ctx.coordinator is not CoordinatorState.CONNECTED:
            return Refusal(Code.COORDINATOR_UNAVAILABLE, "ZooKeeper is away: topics cannot be created", 1000)
        if self._ctx.settings.broker_id not in self.registrations:
            # Its session has expired, perhaps with those of others: who is alive will be known in a moment.
            return Refusal(Code.COORDINATOR_UNAVAILABLE, "this broker is not registered just now", 200)
        alive = len(self.registrations)
        if request.replicas > alive:
            return invalid(f"{request.replicas} replicas need {request.replicas} living brokers, not {alive}")
        return None

    def _check(self, request: CreateTopicRequest) -> Refusal | None:
        if not _NAME.match(request.topic):
            return invalid(
                f"a topic name has 1 to 255 characters of A-Z a-z 0-9 . _ -, not {request.topic!r:.300}"
            )
        if request.topic in UNADDRESSABLE:
            return invalid(f"a topic name is not {request.topic!r}, which is a folder in a URL")
        if request.kind not in KINDS:
            return invalid(f"topic kind {request.kind!r:.80} is not known; there is {', '.join(KINDS)}")
        if not 1 <= request.partitions <= limits.PARTITIONS_MAX:
            return invalid(f"a topic has 1 to {limits.PARTITIONS_MAX} partitions, not {request.partitions}")
        if not 1 <= request.replicas <= limits.REPLICAS_MAX:
            return invalid(f"a topic has 1 to {limits.REPLICAS_MAX} replicas, not {request.replicas}")
        if not 0 <= request.min_isr <= request.replicas:
            return invalid(
                f"min_isr is 1 to {request.replicas} (or 0 for the default), not {request.min_isr}"
            )
        if not 0 <= request.payload_bytes_max <= limits.PAYLOAD_BYTES_MAX:
            return invalid(
                f"payload_bytes_max is at most {limits.PAYLOAD_BYTES_MAX}, not {request.payload_bytes_max}"
            )
        if not 0 <= request.horizon_ms <= limits.DUE_MS_MAX:
            return invalid(f"a horizon has 0 to {limits.DUE_MS_MAX} ms, not {request.horizon_ms}")
        if len(request.creation_id) != 16:
            return invalid(f"a creation id has 16 bytes, not {len(request.creation_id)}")
        return self._check_settings(request) if request.document else None

    def _check_settings(self, request: CreateTopicRequest) -> Refusal | None:
        try:
            changes = _changes(request.document, "the settings of a new topic are")
            settings = AS_CREATED.begun(changes, request.creation_id.hex())
        except SettingsRefused as refused:
            return invalid(str(refused))
        if settings.endpoint is not None:
            return invalid("a topic gets its endpoint once it exists")
        if settings.rate and request.partitions > 1:
            return invalid(
                f"a topic with a rate has 1 partition, not {request.partitions}: rate is {settings.rate}"
            )
        behind = holding_back(self._ctx, self.registrations, SETTINGS_LEVEL)
        return Refusal(Code.BUSY, level_needed(SETTINGS_LEVEL, sorted(behind)), 1000) if behind else None

    def _order(self, token: int, request: CreateTopicRequest) -> CreateTopic:
        replicas_of = self._place(request.partitions, request.replicas)
        settings = TopicSettings(
            payload_bytes_max=request.payload_bytes_max or limits.PAYLOAD_BYTES_MAX,
            horizon_ms=request.horizon_ms,
        )
        return CreateTopic(
            token, request.topic, request.creation_id.hex(), request.kind, replicas_of, self._members(),
            request.replicas, request.min_isr or request.replicas // 2 + 1,
            settings.begun(decode_document(request.document or "{}"), request.creation_id.hex()),
        )  # fmt: skip

    def _place(self, partitions: int, replicas: int) -> tuple[tuple[str, ...], ...]:
        """Choose the brokers of new partitions: each begins one broker after the one before."""
        brokers = sorted(self.registrations)
        if not self._counted:
            self._counted = True
            self._offset = max(self._offset, sum(len(topic.partitions) for topic in self.by_name.values()))
        offset = self._offset
        self._offset += partitions
        return tuple(
            tuple(brokers[(offset + index + step) % len(brokers)] for step in range(replicas))
            for index in range(partitions)
        )

    def _members(self) -> tuple[Member, ...]:
        return tuple(Member(name, self.registrations[name].store_id) for name in sorted(self.registrations))

    # -------------------------------------------------------------- changing

    def update(self, route: Route, request: UpdateTopicRequest, known: Topic) -> Refusal | None:
        """Order a change of a topic; answered with how it stands then, changed or not."""
        version, update = known.settings.version, request.update_id.hex()
        another = request.uid not in (0, known.uid)
        if another or version > request.version or known.has_stored(update):
            self._ctx.reply(route, Reply(request.request_id, Code.OK, document=_standing(known, update)))
            return None
        try:
            changes = _changes(request.document, "a change of a topic is")
            settings = known.settings.changed(changes, update)
        except SettingsRefused as refused:
            return invalid(str(refused))
        if version < request.version:
            # This broker lags, or there is no such version. An order that changes nothing tells how the topic stands.
            settings = replace(settings, version=version)
        if "endpoint" in changes and (refusal := self._other_endpoints(known, settings)) is not None:
            return refusal
        added = request.partitions - len(known.partitions) if request.partitions else 0
        if (refusal := self._cannot_grow(request, known, added)) is not None:
            return refusal
        count = len(known.partitions) + added
        if settings.rate and count > 1:
            return invalid(f"a topic with a rate has 1 partition, not {count}: rate is {settings.rate}")
        concerned = {*known.brokers, *self._ctx.levels} if added else known.brokers
        behind = holding_back(self._ctx, concerned, SETTINGS_LEVEL)
        if behind:
            return Refusal(Code.BUSY, level_needed(SETTINGS_LEVEL, sorted(behind)), 1000)
        if self._ctx.coordinator is not CoordinatorState.CONNECTED:
            return Refusal(Code.COORDINATOR_UNAVAILABLE, "ZooKeeper is away: topics cannot be changed", 1000)
        token = self._ctx.new_token()
        self._orders[token] = _Order(route, request.request_id, partial(_standing, update=update))
        replicas_of = self._place(added, known.replicas) if added else ()
        self._ctx.coordinate(
            UpdateTopic(token, request.topic, known.creation_id, settings, replicas_of, self._members())
        )
        return None

    def _other_endpoints(self, topic: Topic, settings: TopicSettings) -> Refusal | None:
        """Say which endpoint of another topic is in the way of a new one, or of a new name; None: none is."""
        if settings.endpoint is None:
            return None
        before = topic.settings.endpoint
        if before is not None and before["name"] == settings.endpoint["name"]:
            return None  # if two have come to one name at once, each can still be changed
        others = {
            other.settings.endpoint["name"]: name
            for name, other in self.by_name.items()
            if name != topic.name and other.settings.endpoint is not None
        }
        name = settings.endpoint["name"]
        if name in others:
            return invalid(f"endpoint {name!r} is of topic {others[name]!r}, not of {topic.name!r}")
        if len(others) >= limits.ENDPOINTS_MAX:
            return invalid(f"a mesh has at most {limits.ENDPOINTS_MAX} endpoints")
        return None

    def _cannot_grow(self, request: UpdateTopicRequest, known: Topic, added: int) -> Refusal | None:
        """Say why a topic does not get so many more partitions; None: it does, or none are asked for."""
        count = len(known.partitions)
        if request.partitions > limits.PARTITIONS_MAX:
            return invalid(f"a topic has 1 to {limits.PARTITIONS_MAX} partitions, not {request.partitions}")
        if added < 0:
            return invalid(
                f"topic {known.name!r} has {count} partitions, and never fewer: not {request.partitions}"
            )
        if added and self._ctx.settings.broker_id not in self.registrations:
            return Refusal(Code.COORDINATOR_UNAVAILABLE, "this broker is not registered just now", 200)
        if added and known.replicas > len(self.registrations):
            alive = len(self.registrations)
            return Refusal(
                Code.BUSY,
                f"{known.replicas} replicas of a partition need {known.replicas} living brokers, not {alive}",
                1000,
            )
        return None

    def delete(self, route: Route, request: DeleteTopicRequest) -> Refusal | None:
        """Order a topic's end; answered when its tombstones stand."""
        if not _NAME.match(request.topic):
            # ZooKeeper hangs up on a request of more than 1 MiB, and the order would be tried again and again.
            return Refusal(Code.TOPIC_NOT_FOUND, f"there is no topic {request.topic!r:.80}")
        if self._ctx.coordinator is not CoordinatorState.CONNECTED:
            return Refusal(Code.COORDINATOR_UNAVAILABLE, "ZooKeeper is away: topics cannot be deleted", 1000)
        token = self._ctx.new_token()
        self._orders[token] = _Order(route, request.request_id, _uids)
        self._ctx.coordinate(DeleteTopic(token, request.topic, request.uid))
        return None

    def order_done(self, done: TopicOrderDone) -> None:
        """The coordinator has answered."""
        order = self._orders.pop(done.token, None)
        if order is None:
            return
        code = _CODES[done.error]
        if code == Code.TOPIC_EXISTS and order.exist_ok:
            code = Code.OK
        retry_ms = 1000 if code in (Code.COORDINATOR_UNAVAILABLE, Code.OUTCOME_UNKNOWN) else 0
        document = order.answer(done.topic) if done.topic is not None else ""
        self._ctx.reply(order.route, Reply(order.request_id, code, done.text, document, retry_ms))


def _standing(topic: Topic, update: str) -> str:
    """Return the topic, as the answer to a change of it describes it: a change that is stored is named as the last."""
    settings = topic.settings
    uids = [partition.uid for partition in topic.partitions]
    last = update if topic.has_stored(update) else settings.update
    return json.dumps({"version": settings.version, "update": last, "partitions": uids})


def _uids(topic: Topic) -> str:
    """The topic, as the answer to its creation describes it. The client's next question may go to a broker that only
    knows a predecessor.
    """
    return json.dumps([partition.uid for partition in topic.partitions])


def _changes(document: str, what: str) -> dict[str, Any]:
    """Return the changes that a request names.

    Raises:
        SettingsRefused: it does not name any.
    """
    rule = f"{what} a JSON object of at most {limits.SETTINGS_BYTES_MAX} bytes, not {document:.80}"
    if len(document.encode()) > limits.SETTINGS_BYTES_MAX:
        raise SettingsRefused(rule)
    try:
        return decode_document(document)
    except ValueError as error:
        raise SettingsRefused(f"{rule}: {error}") from None
