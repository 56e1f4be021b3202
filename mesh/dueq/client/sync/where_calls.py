# Made of aio/where_calls.py by scripts/generate-faces: write there.
"""The part of a client that changes all messages that match a filter (see `passes`)."""

from __future__ import annotations

from datetime import timedelta

from dueq.client import arguments, passes, per_row, times
from dueq.client.filters import Filter, filter_document
from dueq.client.passes import Document
from dueq.client.sync.connection import Connection
from dueq.client.sync.passes import Pass
from dueq.client.times import Due, Seconds
from dueq.errors import InvalidRequest


class WhereCalls:
    """A client's calls about all messages of a topic that match a filter.

    Each begins a *pass*, which the brokers work off, and returns at once. A pass covers what was scheduled
    before it, except messages that somebody moves or changes meanwhile. Each is changed once, also when leaders change.
    Messages that a consumer has are left as they are, and counted; those of a job that is not committed do not match.

    All take a `name` of up to 64 characters for the pass: the same call under the same name goes on with it. All raise:

    * InvalidRequest: an argument is not valid, or the topic has no ranks. Nothing was changed.
    * PassExists: another pass has this name. Nothing was changed.
    * TopicNotFound: there is no such topic.
    * Busy: some partition knows too many passes, or runs an older build. The pass may have begun in others.
    * OutcomeUnknown: no answer in time; the call can be repeated under the same name.
    * Disconnected: no broker was reached in time; nothing was changed.
    """

    connection: Connection

    def count_where(self, topic: str, wanted: Filter, *, timeout: float | None = None) -> int:
        """Return how many messages match a filter, about: messages that come and go meanwhile may count or not.

        Args:
            topic: its name.
            wanted: which messages.
            timeout: seconds for each request (65,536 messages are looked at).

        Raises:
            InvalidRequest: it is no filter.
            TopicNotFound: there is no such topic.
            Unavailable: a partition has no leader that answered in time.
        """
        return self.connection.follow(passes.count(topic, filter_document(wanted)), timeout)

    def cancel_where(
        self, topic: str, wanted: Filter, *, name: str | None = None, timeout: float | None = None
    ) -> Pass:
        """Cancel messages."""
        return self._begin(topic, wanted, {"do": "cancel"}, name, timeout)

    def shift_where(
        self,
        topic: str,
        wanted: Filter,
        *,
        by: timedelta,
        name: str | None = None,
        timeout: float | None = None,
    ) -> Pass:
        """Move messages by a length of time, later or (if it is negative) sooner.

        What would be due beyond the topic's horizon, or at its own expiry or later, is left as it is, and counted.
        """
        return self._begin(topic, wanted, {"do": "shift", "by_ms": passes.shift_ms(by)}, name, timeout)

    def move_where(
        self,
        topic: str,
        wanted: Filter,
        *,
        to: Due,
        spread: Seconds = 0.0,
        name: str | None = None,
        timeout: float | None = None,
    ) -> Pass:
        """Move messages to an instant, or evenly over the interval that begins there.

        Args:
            topic: its name.
            wanted: which messages.
            to: as for `schedule`.
            spread: how long the interval is, seconds or timedelta.
            name: of the pass; None: a new one.
            timeout: seconds.
        """
        clock = self.connection.clock(times.is_relative(to), timeout)
        work = {"do": "move", "to_ms": times.due_ms(to, clock), "spread_ms": passes.spread_ms(spread)}
        return self._begin(topic, wanted, work, name, timeout)

    def change_where(
        self, topic: str, wanted: Filter, *, rank: int, name: str | None = None, timeout: float | None = None
    ) -> Pass:
        """Give messages of a priority or fair topic another rank, 0 to 65,535."""
        work = {"do": "change", "rank": per_row.one_rank(rank)}
        return self._begin(topic, wanted, work, name, timeout)

    def redrive_where(
        self,
        topic: str,
        wanted: Filter,
        *,
        spread: Seconds = 0.0,
        name: str | None = None,
        timeout: float | None = None,
    ) -> Pass:
        """Let dead messages wait again as if they had never been tried: from now on, or evenly over an interval.

        Args:
            topic: its name.
            wanted: which messages, of state "dead".
            spread: how long the interval is that begins now, seconds or timedelta.
            name: of the pass; None: a new one.
            timeout: seconds.
        """
        work = {"do": "redrive", "spread_ms": passes.spread_ms(spread)}
        return self._begin(topic, wanted, work, name, timeout)

    def discard_where(
        self, topic: str, wanted: Filter, *, name: str | None = None, timeout: float | None = None
    ) -> Pass:
        """Discard dead messages: `wanted` is of state "dead".

        Raises:
            InvalidRequest: `wanted` is about messages that wait; they are cancelled.
        """
        if filter_document(wanted)["state"] != "dead":
            raise InvalidRequest(f"messages of state dead are discarded, not those of {wanted.state!r:.80}")
        return self._begin(topic, wanted, {"do": "purge"}, name, timeout)

    def pass_named(self, topic: str, name: str) -> Pass:
        """Return the pass of this name, whoever has begun it: to see how far it is, to wait for it or stop it."""
        return Pass(self.connection, arguments.topic_name(topic), passes.checked_name(name))

    def _begin(
        self, topic: str, wanted: Filter, work: Document, name: str | None, timeout: float | None
    ) -> Pass:
        named = passes.new_name() if name is None else passes.checked_name(name)
        document = {**work, "filter": filter_document(wanted)}
        self.connection.run(passes.begin(topic, named, document), timeout)
        return Pass(self.connection, topic, named)
