"""The endpoints of the mesh, each with a worker at this gateway."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from dueq import AsyncClient, limits
from dueq.client import endpoints
from dueq.client.endpoints import StoredEndpoint
from dueq.errors import Busy, DueqError, EndpointNotFound, SecretsSealed
from dueq.gateway.logs import log
from dueq.gateway.webhooks.answers import Answer
from dueq.gateway.webhooks.counters import Counters
from dueq.gateway.webhooks.outgoing import request_of
from dueq.gateway.webhooks.room import Room, Share
from dueq.gateway.webhooks.sending import Sender
from dueq.gateway.webhooks.worker import Worker
from dueq.sealing import NO_KEY, Keys, opened
from dueq_codecs.endpoint import all_sealed

_POLL_S: Final = limits.WEBHOOK_POLL_MS / 1000
_ASKED_S: Final = 10.0
_REST_S: Final = 0.05
"""Shortest time between two looks that workers ask for."""
_REST_TIMES: Final = 9
"""How many times as long as the look before it is, at least: looks take a tenth of the time."""
_FAILING_MS: Final = 10_000
"""A receiver that fails now and then has taken something within that time."""
_DRAIN_S: Final = limits.GATEWAY_STOP_MS / 2000
"""How long requests under way get when the gateway stops."""

_Key = tuple[str, str]
"""Which endpoint: its topic and its name. Two topics that get their endpoints at once may both have one name."""


def _key(endpoint: StoredEndpoint) -> _Key:
    return endpoint.topic, endpoint.name


@dataclass(frozen=True, slots=True)
class _Test:
    """A message that is in no topic."""

    topic: str
    id: str
    due: int
    released_at: int
    payload: bytes = b'{"type":"dueq.test"}'
    key: str = ""
    attempt: int = 1
    headers: dict[str, str] = field(default_factory=lambda: {"content_type": "application/json"})


class Webhooks:
    """Sends due messages to the endpoints of the mesh, from `start` to `close`. For the tasks of one loop.

    Args:
        client: the SDK.
        keys: open the secrets of endpoints.
    """

    def __init__(self, client: AsyncClient, keys: Keys | None = None) -> None:
        self._client, self._keys = client, keys
        self._warned = False
        self._locked: dict[_Key, int] = {}  # versions of endpoints whose secrets cannot be opened here
        self._workers: dict[_Key, Worker] = {}
        self._counters: dict[_Key, Counters] = {}
        self._stopping: dict[asyncio.Task[None], Worker] = {}
        self._asked = asyncio.Event()
        self._rest_s = _REST_S
        self._soon: asyncio.TimerHandle | None = None
        self._means: tuple[Sender, Room] | None = None
        self._tests: Share | None = None
        self._watching: asyncio.Task[None] | None = None
        self._now_us: Callable[[], int] = lambda: 0

    def start(self, sender: Sender, room: Room) -> None:
        """Begin.

        Args:
            sender: of all requests of the gateway; it stays open until this is closed.
            room: of all of them.
        """
        self._means = (sender, room)
        # No test waits for room.
        self._tests = room.share(lambda: None)
        self._watching = self._begun()

    async def close(self) -> None:
        """Begin no more requests, let those under way end, and give everything else back. Once more does nothing."""
        watching, self._watching = self._watching, None
        if watching is None:
            return
        watching.cancel()
        await asyncio.wait([watching])
        for key in list(self._workers):
            self._leave(key)
        hurried = [worker.stop(_DRAIN_S) for worker in self._stopping.values()]
        await asyncio.gather(*self._stopping, *hurried)
        if self._tests is not None:
            self._tests.leave()

    def look(self) -> None:
        """Endpoints have changed: do not wait for the next look."""
        self._asked.set()

    def counters(self, topic: str, name: str) -> Counters | None:
        """Return the counts of a topic's endpoint here; None: nothing was done yet."""
        return self._counters.get((topic, name))

    def failing(self) -> dict[str, tuple[str, str]]:
        """Return endpoints whose receivers fail, and have taken nothing for a while: (name, why) by topic."""
        served = ((each.endpoint, self._counters.get(key)) for key, each in self._workers.items())
        return {
            endpoint.topic: (endpoint.name, found.last_failure)
            for endpoint, found in served
            if found is not None and found.last_failure_ms > found.last_success_ms + _FAILING_MS
        }

    async def test(self, name: str) -> Answer:
        """Send a request that is no message's to an endpoint, whether it is in use or not; return the answer.

        Raises:
            EndpointNotFound: there is none of this name.
            SecretsSealed: this gateway cannot open its secrets.
            Busy: tests that are under way have their share of the connections.
        """
        found = await self._client.connection.follow(endpoints.find(name), None)
        if self._means is None or self._tests is None:
            raise EndpointNotFound(f"this gateway does not serve endpoints: not {name!r:.80}")
        now_ms = (await self._client.connection.clock(True, None))() // 1000
        message = _Test(found.topic, f"test-{now_ms}", now_ms, now_ms)
        document = opened(found.document, self._keys)
        request = request_of(message, document, now_ms)
        if not self._tests.free:
            self._tests.give_up()
            raise Busy(f"{self._tests.under_way} tests have all connections that tests may have", _POLL_S)
        self._tests.begin()
        try:
            return await request.sent_by(self._means[0], document["name"])
        finally:
            self._tests.end()

    # -------------------------------------------------------------- inside

    def _begun(self) -> asyncio.Task[None]:
        task = asyncio.create_task(self._watch(), name="webhooks")
        task.add_done_callback(self._watched)
        return task

    def _watched(self, task: asyncio.Task[None]) -> None:
        """Go on watching after an error that nobody expected."""
        if not task.cancelled() and self._watching is task:
            log.error("endpoints.failed", error=repr(task.exception()))
            asyncio.get_running_loop().call_later(_POLL_S, self._watch_again, task)

    def _watch_again(self, ended: asyncio.Task[None]) -> None:
        if self._watching is ended:
            self._watching = self._begun()

    async def _watch(self) -> None:
        failed, loop = False, asyncio.get_running_loop()
        while True:
            began_s = loop.time()
            try:
                self._now_us = await self._client.connection.clock(True, _ASKED_S)
                began_s = loop.time()
                self._no_more_soon()
                found = await self._client.connection.follow(endpoints.every(), _ASKED_S)
                self._seen(found, began_s)
                failed = False
            except DueqError as error:
                # Workers go on with the endpoints that they serve: the mesh's answers decide.
                if not failed:
                    log.warning("endpoints.unknown", error=str(error))
                failed = True
                for worker in self._workers.values():
                    worker.unseen()
            self._rest_s = max(_REST_S, _REST_TIMES * (loop.time() - began_s))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_POLL_S):
                    await self._asked.wait()
            self._asked.clear()

    def _look_soon(self) -> None:
        """A worker waits for a look that begins from now on."""
        if self._soon is None:
            self._soon = asyncio.get_running_loop().call_later(self._rest_s, self.look)

    def _no_more_soon(self) -> None:
        """A look begins."""
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None

    def _seen(self, found: list[StoredEndpoint], began_s: float) -> None:
        """Serve the endpoints in use, as a look says that began at an instant by the loop's clock."""
        wanted = {_key(each): each for each in map(self._opened, found) if each is not None}
        for key, worker in list(self._workers.items()):
            new = wanted.get(key)
            # Versions begin anew with a topic that is deleted and made again.
            if new is None or new.document != worker.endpoint.document or worker.done:
                self._leave(key)
            else:
                worker.seen(new, began_s)
        for key in self._counters.keys() - {_key(each) for each in found}:
            del self._counters[key]
            self._locked.pop(key, None)
        assert self._means is not None
        sender, room = self._means
        for key, endpoint in wanted.items():
            if key not in self._workers:
                counters = self._counters.setdefault(key, Counters())
                self._workers[key] = Worker(
                    self._client, sender, endpoint, lambda: self._now_us(), counters, room, self._look_soon
                )

    def _opened(self, found: StoredEndpoint) -> StoredEndpoint | None:
        """Return an endpoint with secrets that can be used; None: it is not in use, or they cannot be opened here."""
        if found.document["disabled"]:
            return None
        key = _key(found)
        try:
            document = opened(found.document, self._keys)
        except SecretsSealed as error:
            counters = self._counters.setdefault(key, Counters())
            counters.last_failure_ms, counters.last_failure = self._now_us() // 1000, str(error)
            if self._locked.get(key) != found.version:
                log.error("endpoint.sealed", endpoint=found.name, error=str(error))
            self._locked[key] = found.version
            return None
        self._locked.pop(key, None)
        if not self._warned and not all_sealed(found.document):
            self._warned = True
            log.warning("endpoint.secrets_in_clear", endpoint=found.name, why=NO_KEY)
        return replace(found, document=document)

    def _leave(self, key: _Key) -> None:
        """Serve an endpoint no more; requests under way end in their own time, unless the gateway ends."""
        worker = self._workers.pop(key)
        worker.leave()
        task = asyncio.create_task(worker.stop())
        self._stopping[task] = worker
        task.add_done_callback(self._stopping.pop)
