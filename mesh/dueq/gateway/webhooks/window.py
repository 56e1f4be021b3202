"""How many requests to one endpoint are under way at a time."""

from __future__ import annotations


class Window:
    """Grows by one with each good answer, halves when the receiver fails as a whole, and is one after a `Retry-After`.

    Attributes:
        most: it never grows beyond.
        limit: requests that may be under way, at least one.
        under_way: requests that are.
    """

    def __init__(self, most: int) -> None:
        self.most = self.limit = most
        self.under_way = 0

    @property
    def free(self) -> bool:
        """Whether one more may begin."""
        return self.under_way < self.limit

    def begin(self) -> None:
        """A request begins."""
        self.under_way += 1

    def end(self) -> None:
        """A request has ended."""
        self.under_way -= 1

    def answered(self) -> None:
        """The receiver works."""
        self.limit = min(self.limit + 1, self.most)

    def failed(self) -> None:
        """The receiver does not."""
        self.limit = max(self.limit // 2, 1)

    def throttled(self) -> None:
        """The receiver wants less: after the pause one message finds out whether it can again."""
        self.limit = 1
