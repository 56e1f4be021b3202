"""The connections of a gateway to receivers, shared by all endpoints and queues.

Half of them belong to all in equal shares, so that no slow receiver takes the connections of others. The other half
is for those that need more than their share.
"""

from __future__ import annotations

from collections.abc import Callable


class Room:
    """A number of requests that may be under way at once, divided among shares.

    Args:
        most: requests at most, while there are at most half as many shares.
    """

    def __init__(self, most: int) -> None:
        self._half = most // 2
        self._shares: set[Share] = set()
        self._waiting: dict[Share, None] = {}
        self.under_way = 0

    @property
    def each(self) -> int:
        """How many requests everybody may always have under way."""
        return max(self._half // max(len(self._shares), 1), 1)

    def share(self, wake: Callable[[], object]) -> Share:
        """Return a share for one more; `leave` it in the end.

        Args:
            wake: called when a share that was told to wait may have room.
        """
        made = Share(self, wake)
        self._shares.add(made)
        return made

    def free(self, share: Share) -> bool:
        """Whether one more request of a share may begin; if not, the share is woken when that may have changed."""
        found = share.under_way < self.each or self.under_way < self._half
        if not found:
            self._waiting[share] = None
        return found

    def ended(self, share: Share) -> None:
        """A request of a share is over: that share, or another that waits, may have room."""
        self.under_way -= 1
        if share in self._waiting:
            self._wake(share)
        else:
            self._wake_next()

    def gave_up(self, share: Share) -> None:
        """A share that waited waits no longer: if it was its turn already, the next one has it."""
        self._waiting.pop(share, None)
        self._wake_next()

    def forget(self, share: Share) -> None:
        """A share is not needed any more: the others are larger now."""
        self._shares.discard(share)
        self._waiting.pop(share, None)
        for each in list(self._waiting):
            self._wake(each)

    def _wake_next(self) -> None:
        if self._waiting and self.under_way < self._half:
            self._wake(next(iter(self._waiting)))

    def _wake(self, share: Share) -> None:
        del self._waiting[share]
        share.wake()


class Share:
    """The share of the room of one endpoint, of one queue, or of all tests of endpoints.

    Attributes:
        under_way: its requests.
        wake: called when it may have room.
    """

    def __init__(self, room: Room, wake: Callable[[], object]) -> None:
        self._room, self.wake = room, wake
        self.under_way = 0

    @property
    def free(self) -> bool:
        """Whether one more request may begin; if not, `wake` is called when that may have changed."""
        return self._room.free(self)

    def begin(self) -> None:
        """A request begins."""
        self.under_way += 1
        self._room.under_way += 1

    def end(self) -> None:
        """A request has ended."""
        self.under_way -= 1
        self._room.ended(self)

    def give_up(self) -> None:
        """What was to begin does not: nobody waits for `wake` any more."""
        self._room.gave_up(self)

    def leave(self) -> None:
        """Nothing more begins."""
        self._room.forget(self)
