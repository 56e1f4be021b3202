"""What a pull has asked of which leader."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dueq import limits
from dueq.client.core.changing.settlements import Lease
from dueq.client.core.consuming.arrivals import Arrivals
from dueq.client.core.ports.delivery import Delivery
from dueq.client.core.ports.events import Pull
from dueq.client.core.ports.timers import Timer
from dueq.errors import DueqError
from dueq_codecs.messages import PushChunk

Piece = tuple[int, int, int, int, int]
"""The lease that a chunk belongs to, and its number."""


def leases_of(deliveries: Iterable[Delivery]) -> list[Lease]:
    """Return what a question lists of deliveries."""
    return [(each.uid, each.sequence, each.row, each.token) for each in deliveries]


class Question:
    """A question to a leader, and what has come in answer to it.

    Attributes:
        attach: its number.
        pushes: numbers of its pushes that have arrived whole.
        sent: how many the leader has said that there were; -1: it has not ended.
        pieces: chunks of long payloads that have come.
    """

    def __init__(self, attach: int = 0) -> None:
        self.attach = attach
        self.pushes: set[int] = set()
        self.sent = -1
        self.pieces: set[Piece] = set()

    @property
    def is_answered(self) -> bool:
        """It has ended, and nothing is missing."""
        return 0 <= self.sent <= len(self.pushes)


class Asked:
    """One leader that was asked.

    Attributes:
        question: the present one.
        before: the one before that.
        begun_us: when the present question left (mono).
        link: by which it went; 0: by none.
        wait_us: how long the leader waits for a message, from `begun_us`.
        until_us: how long it waits (mono), as far as it has confirmed it.
        credit: messages that were asked for.
        heard: it has said of the present question that it waits.
        chunk_us: when a chunk last came since the present question (mono); 0: none has.
    """

    def __init__(self, leader: str, wait_us: int, credit: int) -> None:
        self.leader, self.wait_us, self.credit = leader, wait_us, credit
        self.question = self.before = Question()
        self.begun_us = self.until_us = self.link = self.chunk_us = 0
        self.heard = False
        self.timer: Timer | None = None

    @property
    def attach(self) -> int:
        """Number of the present question."""
        return self.question.attach

    def numbered(self, attach: int) -> Question | None:
        """Return the present question or the one before, if this is its number."""
        return next((each for each in (self.question, self.before) if each.attach == attach), None)

    def brought(self, chunk: PushChunk, now_us: int) -> None:
        """Take note of a chunk of the present answer or the one before: it is news if it has not come with it yet."""
        question = self.numbered(chunk.attach)
        piece = chunk.uid, chunk.sequence, chunk.row, chunk.token, chunk.chunk
        if question is not None and piece not in question.pieces:
            question.pieces.add(piece)
            self.chunk_us = now_us

    def ask(self, attach: int) -> None:
        """Put the question anew."""
        self.before, self.question = self.question, Question(attach)
        self.heard, self.chunk_us = False, 0

    @property
    def alive_us(self) -> int:
        """Until when it has shown that it is at work on the present question (mono); 0: it has not."""
        return max(self.until_us if self.heard else 0, self.chunk_us)

    @property
    def waits(self) -> bool:
        """It was asked to wait, and has not ended."""
        return self.wait_us > 0 and self.question.sent < 0 and self.link > 0

    def waits_until(self, until_us: int) -> None:
        """The leader has confirmed that it waits."""
        self.heard = True
        self.until_us = max(self.until_us, until_us)

    def set_timer(self, timer: Timer | None) -> None:
        """Replace the timer."""
        if self.timer is not None:
            self.timer.cancel()
        self.timer = timer


class PullCall:
    """One call.

    Attributes:
        name: of the pull, 16 bytes.
        number: counts the pulls of this client.
        order: of a pull by name: larger than that of an earlier one of the same name; 0: it has not asked yet.
        asked: leaders that have not ended.
        left: leaders that are still to be asked for what is ready.
        answered: leaders that have ended their last answer, and the number of the link.
        heard: some leader has answered.
        over: the call is answered; what comes is given back.
        given_up: leases that came to it and are another pull's, or nobody's: its questions list them.
        followed: it is over since one of another process has followed by its name, to which what comes belongs.
    """

    def __init__(self, event: Pull, name: bytes, number: int, begun_us: int) -> None:
        self.event, self.name, self.number, self.begun_us = event, name, number, begun_us
        self.until_us = begun_us + event.wait_us
        self.arrivals = Arrivals(event.credit_bytes)
        self.asked: dict[str, Asked] = {}
        self.left: list[str] = []
        self.answered: dict[str, int] = {}
        self.got: list[Delivery] = []
        self.given_up: list[Lease] = []
        self.attaches = self.order = 0
        self.heard = self.over = self.followed = False
        self.refusal: DueqError | None = None
        self.timer: Timer | None = None

    @property
    def holder(self) -> bytes:
        """To whom its messages are leased."""
        return self.event.holder or self.name

    def take(self, deliveries: list[Delivery]) -> None:
        """These are its to hand over."""
        self.arrivals.note(deliveries)
        self.got += deliveries

    def give_up(self, deliveries: Sequence[Delivery]) -> None:
        """These have come to it, and are not its."""
        self.given_up += leases_of(deliveries)
        del self.given_up[: -limits.CONSUMER_LEASES_MAX]

    def give_up_all(self) -> list[Delivery]:
        """What it has is not its any more; returns it."""
        got, self.got = self.got, []
        self.give_up(got)
        return got

    def left_us(self, now_us: int) -> int:
        """How long the caller waits for a message from now on."""
        return max(self.until_us - now_us, 0)
