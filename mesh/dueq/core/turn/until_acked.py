"""Messages to a peer that are repeated until it has answered a frame that held them: frames may be lost."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar


class AboutPartition(Protocol):
    """Something said of one partition."""

    @property
    def uid(self) -> int:
        """The partition."""
        ...


Item = TypeVar("Item", bound=AboutPartition)


class UntilAcked(Generic[Item]):
    """Items of one kind for one peer, the latest of each partition: in every frame until one of them is answered.

    A peer says only which frame was the latest that it received. If that frame held an item, it does not matter which
    others were lost.

    Attributes:
        untold: by partition, what no frame has held yet; a frame is wanted while there is any.
    """

    def __init__(self) -> None:
        self.untold: dict[int, Item] = {}
        # Told first at an instant of the own monotonic clock (µs); the oldest first.
        self._told: dict[int, tuple[int, Item]] = {}

    def put(self, item: Item) -> None:
        """Tell this, instead of earlier news of the partition."""
        self._told.pop(item.uid, None)
        self.untold[item.uid] = item

    def forget(self, uid: int) -> None:
        """The partition is gone."""
        self.untold.pop(uid, None)
        self._told.pop(uid, None)

    def clear(self) -> None:
        """The peer is gone."""
        self.untold.clear()
        self._told.clear()

    def take(self, built_us: int) -> list[Item]:
        """Return what belongs into the frame of this instant (mono µs), by which the peer answers."""
        for item in self.untold.values():
            self._told[item.uid] = built_us, item
        self.untold.clear()
        return [item for _, item in self._told.values()]

    def answered(self, built_us: int) -> None:
        """The peer has answered the frame of that instant, or a later one."""
        told = self._told
        while told:
            uid = next(iter(told))
            if told[uid][0] > built_us:
                return
            del told[uid]
