# Made of aio/group_calls.py by scripts/generate-faces: write there.
"""The part of a client that works with groups of fair topics (see `groups`)."""

from __future__ import annotations

from collections.abc import Iterator

from dueq.client import arguments, groups
from dueq.client.groups import GroupInfo
from dueq.client.sync.connection import Connection


class GroupCalls:
    """A client's calls that concern groups. All raise `Unavailable` subclasses and `OutcomeUnknown` as producers do."""

    connection: Connection

    def set_group(
        self,
        topic: str,
        group: str,
        *,
        weight: int | None = None,
        max_unacked: int | None = None,
        paused: bool | None = None,
        rate: int | None = None,
        burst: int | None = None,
        timeout: float | None = None,
    ) -> None:
        """Set something for a group of a fair topic, and so for all groups below it; what is None stays as it is.

        Args:
            topic: an existing topic of kind "fair".
            group: its name, such as "acme.reports"; it need not have messages.
            weight: how many messages it gets at its turn, 1 to 1,000; 1 at first.
            max_unacked: messages that consumers may hold at once, up to 1,000,000; 0 at first: no limit.
            paused: deliver none of its messages; what consumers hold they keep.
            rate: the most messages that are delivered in a second, up to 1,000,000; 0 at first: no limit.
            burst: how many of them at once; 0 at first: as many as in a second. Without a rate it has no effect.
            timeout: seconds.

        Raises:
            InvalidRequest: a value is outside its limits, nothing is set, or the topic has no groups.
            TopicNotFound
        """
        changes = {
            "weight": weight, "max_unacked": max_unacked, "paused": paused, "rate": rate, "burst": burst,
        }  # fmt: skip
        self.connection.run(groups.set_group(topic, group, changes), timeout)

    def groups(self, topic: str, *, timeout: float | None = None) -> Iterator[GroupInfo]:
        """Yield the groups of a topic by name: those that have messages, or for which something is set.

        Args:
            topic: an existing topic.
            timeout: seconds for each request.

        Raises:
            TopicNotFound
        """
        return self._groups(arguments.topic_name(topic), timeout)

    def _groups(self, topic: str, timeout: float | None) -> Iterator[GroupInfo]:
        after = ""
        while True:
            page = self.connection.run(groups.page(topic, after), timeout)
            for group in page.groups:
                yield group
            if not page.after:
                return
            after = page.after
