# Made of aio/passes.py by scripts/generate-faces: write there.
"""A pass that runs in the mesh, as its owner sees it."""

from __future__ import annotations

from collections.abc import Mapping

from dueq.client import passes
from dueq.client.passes import Progress
from dueq.client.sync.connection import Connection
from dueq.client.sync.waiting import sleep


class Pass:
    """Work on all messages of a topic that match a filter. It goes on without this object, and without this client.

    Attributes:
        topic: whose messages.
        name: of the pass, in the mesh; the first of `names`.
        names: a purge of all messages has two passes, all else has one.
        progress: how far it was when it was last asked for.
    """

    def __init__(self, connection: Connection, topic: str, name: str, *others: str) -> None:
        self.topic, self.name, self.names = topic, name, (name, *others)
        self.progress = Progress()
        self._connection = connection

    @property
    def done(self) -> int:
        """Messages that it has finished, as last asked for."""
        return self.progress.done

    @property
    def skipped(self) -> Mapping[str, int]:
        """Messages that matched and were left as they are, by reason, as last asked for."""
        return self.progress.skipped

    @property
    def left(self) -> int:
        """At most this many messages are still to be looked at, as last asked for."""
        return self.progress.left

    def refresh(self, *, timeout: float | None = None) -> Progress:
        """Ask how far it is, and return that.

        Raises:
            TopicNotFound: the topic was deleted.
            Disconnected: no broker was reached in time.
        """
        found = []
        for name in self.names:
            found.append(self._connection.run(passes.look(self.topic, name), timeout))
        self.progress = passes.added(found)
        return self.progress

    def wait(self, *, timeout: float | None = None) -> Progress:
        """Wait until every partition has worked it off, or it was stopped; `timeout` is for each question.

        If nothing is known of it (it was never begun, or ended long ago), there is nothing to wait for: `known` of what
        is returned says so.
        """
        while True:
            found = self.refresh(timeout=timeout)
            if found.ended or not found.known:
                return found
            sleep(self._connection.live(), passes.POLL_S)

    def stop(self, *, timeout: float | None = None) -> Progress:
        """Stop it: what it has finished stays so."""
        for name in self.names:
            self._connection.run(passes.stop(self.topic, name), timeout)
        return self.refresh(timeout=timeout)
