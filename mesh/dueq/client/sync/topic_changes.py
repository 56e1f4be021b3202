# Made of aio/topic_changes.py by scripts/generate-faces: write there.
"""The part of a client that changes topics (see `topic_changes`)."""

from __future__ import annotations

from collections.abc import Mapping

from dueq.client import passes, times, topic_changes
from dueq.client.backoff import Backoff
from dueq.client.sync.connection import Connection
from dueq.client.sync.passes import Pass
from dueq.client.times import Due, Seconds


class TopicChanges:
    """A client's calls that change a topic while it is in use.

    Each returns once every partition applies the change. All raise the same errors:

    * InvalidRequest: a value is outside its limits; nothing was changed.
    * TopicNotFound: there is no such topic.
    * Busy: a broker that has a replica runs an older build; nothing was changed.
    * NotYetApplied: the change is stored, and some partitions had no leader that could apply it in time. Each applies
      it when it is led again.
    * OutcomeUnknown: no answer in time, so the change may or may not be stored; the call can be repeated.
    * Disconnected: no broker was reached in time; nothing was changed.
    """

    connection: Connection

    def update_topic(
        self,
        topic: str,
        *,
        payload_bytes_max: int | None = None,
        horizon: Seconds | None = None,
        partitions: int | None = None,
        remember: Seconds | None = None,
        rate: float | None = None,
        burst: int | None = None,
        max_attempts: int | None = None,
        backoff: Backoff | None = None,
        expired: str | None = None,
        dead_retention: Seconds | None = None,
        labels: Mapping[str, str] | None = None,
        if_version: int | None = None,
        timeout: float | None = None,
    ) -> None:
        """Change a topic; what is None stays as it is. Messages that are there already stay where they are.

        Args:
            topic: its name.
            payload_bytes_max: the longest payload, 1 byte to 64 MiB.
            horizon: how far ahead a message may be due, seconds or timedelta; 0: no cap.
            partitions: how many the topic is to have, at most 1,024; it never gets fewer. New messages are spread over
                all of them. Jobs are decided by those that the topic was created with.
            remember: of a topic with unique keys: for how long a key stays taken once its message is finished; seconds
                or timedelta, at most 30 days. It is the time of the partition: as long as records are made.
            rate: the most messages that are delivered in a second, 0.001 to 1,000,000; 0: no limit. Only a topic of one
                partition has one.
            burst: how many of them may be delivered at once; 0: as many as in a second.
            max_attempts: how often a message is delivered before it is dead; 0: as often as it takes.
            backoff: how long a message waits that is given back without a delay, or whose lease ran out.
            expired: what becomes of a message that is not delivered in time: "finish" or "dead".
            dead_retention: how long a dead message stays, seconds or timedelta.
            labels: what its owner has to say of the topic, for people and programs: at most 32 texts by name, of 2 KiB
                together. They take the place of those that it had.
            if_version: only if its settings have this version (`TopicInfo.settings_version`).
            timeout: seconds for each request.

        Raises:
            VersionDiffers: the settings have not `if_version`, but the `present` one; nothing was changed.
        """
        changes = topic_changes.settings(payload_bytes_max, horizon, rate, burst, labels)
        changes |= topic_changes.of_keys(None, remember)
        changes |= topic_changes.endings(max_attempts, backoff, expired, dead_retention)
        count = topic_changes.partition_count(partitions, changes)
        self.connection.follow(topic_changes.change(topic, changes, count, if_version), timeout)

    def pause(self, topic: str, until: Due | None = None, *, timeout: float | None = None) -> None:
        """Stop the delivery of a topic's messages. Messages are taken as before.

        Once this returns, no broker delivers any message of the topic before it is resumed. What a consumer has already
        can be acknowledged, given back or kept for longer.

        Args:
            topic: its name.
            until: when the pause ends by itself, as for `schedule`: at once, if that is over; None: it lasts until
                `resume`.
            timeout: seconds for each request.
        """
        until_ms = 0
        if until is not None:
            clock = self.connection.clock(times.is_relative(until), timeout)
            until_ms = times.end_ms(until, clock, "until")
        self.connection.follow(topic_changes.change(topic, topic_changes.paused(until_ms)), timeout)

    def purge(
        self, topic: str, state: str = "waiting", *, wait: bool = True, timeout: float | None = None
    ) -> Pass:
        """Finish all messages of a topic that are in a state, as if each were cancelled.

        It is about the messages that were scheduled before, and that nobody changes meanwhile. Those that a consumer
        has are skipped, and counted; those of a job that is not committed are not touched.

        Args:
            topic: its name.
            state: "waiting", "dead", or "all": both, with the results added up.
            wait: return when it is done; otherwise it goes on, and `Pass.wait` waits for it.
            timeout: seconds for each request.

        Raises:
            InvalidRequest: messages in this state cannot be purged.
        """
        names = []
        for each in passes.purged(state):
            names.append(passes.new_name())
            self.connection.run(passes.purge(topic, names[-1], each), timeout)
        begun = Pass(self.connection, topic, *names)
        if wait:
            begun.wait(timeout=timeout)
        return begun

    def resume(self, topic: str, *, timeout: float | None = None) -> None:
        """End a pause: what is due is delivered at once. A topic that is not paused stays as it is."""
        self.connection.follow(topic_changes.change(topic, topic_changes.RESUMED), timeout)
