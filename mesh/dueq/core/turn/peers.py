"""One other broker: the facts known about it, and the one stream to it.

Everything for a peer that comes up in a turn is gathered here and leaves as one PeerFrame. A frame can be lost,
repeated or overtaken, so nothing depends on its arrival: appends and acks are resent by those who own them.
Leaderships, fences and last commit positions (`UntilAcked`) go into every frame until the peer has answered a frame
that held them.
"""

from __future__ import annotations

from typing import Any

from dueq import limits
from dueq.core.turn.settings import CoreSettings
from dueq.core.turn.until_acked import UntilAcked
from dueq.instant import Now
from dueq_codecs.messages import (
    Ack,
    Append,
    Fence,
    JobAsk,
    JobTell,
    Leadership,
    Mismatch,
    PeerFrame,
    UploadAck,
    Vote,
    VoteRequest,
)


class Peer:
    """A broker of the mesh other than this one.

    Attributes:
        incarnation, store_id, endpoint: of its latest registration.
        registered: whether that registration is there now.
        heard_at_us: (own mono) when its last frame came; 0: never in this incarnation.
        answered_to_us: (own mono) when the latest own frame left that it has answered: it lived after that.
    """

    def __init__(self, broker_id: str) -> None:
        self.broker_id = broker_id
        self.incarnation = 0
        self.store_id = ""
        self.endpoint = ""
        self.metrics = ""
        self.registered = False
        self.fresh = False
        self.heard_at_us = 0
        self.answered_to_us = 0
        self.ping_at_us = 0
        self.latest_sent_us = -1
        self._built_us = 0
        self._echo = (0, 0, 0)
        self._pong = False
        self._fences: UntilAcked[Fence] = UntilAcked()
        self._leaderships: UntilAcked[Leadership] = UntilAcked()
        self._commits: UntilAcked[Append] = UntilAcked()
        self._repeated: tuple[UntilAcked[Any], ...] = (self._fences, self._leaderships, self._commits)
        self.appends: list[Append] = []
        self.acks: dict[int, Ack] = {}
        self.mismatches: list[Mismatch] = []
        self.vote_requests: list[VoteRequest] = []
        self.votes: list[Vote] = []
        self.upload_acks: list[UploadAck] = []
        self.job_asks: list[JobAsk] = []
        self.job_tells: list[JobTell] = []

    def reborn(self, incarnation: int, store_id: str, endpoint: str, metrics: str, now: Now) -> None:
        """A new life: nothing that the old one was told or has said counts."""
        self.incarnation, self.store_id = incarnation, store_id
        self.endpoint, self.metrics = endpoint, metrics
        self.heard_at_us = now.mono_us
        self.answered_to_us = self.ping_at_us = 0
        self.latest_sent_us = -1
        self._echo = (0, 0, 0)
        for items in self._repeated:
            items.clear()
        self._clear()
        self.fresh = True

    def _clear(self) -> None:
        self.appends = []
        self.acks = {}
        self.mismatches = []
        self.vote_requests = []
        self.votes = []
        self.upload_acks = []
        self.job_asks = []
        self.job_tells = []
        self._pong = False

    def fence(self, item: Fence) -> None:
        """Tell the peer of a newer epoch, surely."""
        self._fences.put(item)

    def tell_leadership(self, item: Leadership) -> None:
        """Tell the peer who leads, surely."""
        self._leaderships.put(item)

    def tell_commit(self, item: Append) -> None:
        """Tell the peer a commit position, surely: an Append without records, as nothing else would repeat it."""
        self._commits.put(item)

    def forget(self, uid: int) -> None:
        """The partition is gone."""
        for items in self._repeated:
            items.forget(uid)

    def frame_received(self, frame: PeerFrame, now: Now) -> None:
        """Note that the peer lives, what it has answered, and its clocks for the answer."""
        self.heard_at_us = now.mono_us
        if frame.echo_mono_us > self.answered_to_us:
            self.answered_to_us = frame.echo_mono_us
            for items in self._repeated:
                items.answered(frame.echo_mono_us)
        self._pong = self._pong or frame.ping
        if self.latest_sent_us < 0:
            self.ping_at_us = 0  # its first word: it is there to answer, and its clock is wanted
        if frame.sent_mono_us > self.latest_sent_us:
            self.latest_sent_us = frame.sent_mono_us
            self._echo = (frame.sent_mono_us, frame.sent_wall_us, now.wall_us)

    def silent_for_us(self, now: Now) -> int:
        """Time since anything was heard, or since registration was seen when nothing ever was."""
        return now.mono_us - self.heard_at_us

    def wants_frame(self, now: Now) -> bool:
        """Whether there is anything to say, or a ping is due."""
        return bool(
            self.appends
            or self.acks
            or self.mismatches
            or self.vote_requests
            or self.votes
            or self.upload_acks
            or self.job_asks
            or self.job_tells
            or self._pong
            or now.mono_us >= self.ping_at_us
            or self._leaderships.untold
            or self._commits.untold
            or self._fences.untold
        )

    def build_frame(self, settings: CoreSettings, now: Now) -> PeerFrame:
        """Take everything gathered as one frame."""
        ping = now.mono_us >= self.ping_at_us
        if ping:
            self.ping_at_us = now.mono_us + limits.HEARTBEAT_MS * 1000
        self._built_us = max(self._built_us + 1, now.mono_us)
        frame = PeerFrame(
            sender=settings.broker_id,
            incarnation=settings.incarnation,
            receiver=self.broker_id,
            receiver_incarnation=self.incarnation,
            sent_mono_us=self._built_us,
            sent_wall_us=now.wall_us,
            echo_mono_us=self._echo[0],
            echo_wall_us=self._echo[1],
            echo_received_wall_us=self._echo[2],
            ping=ping,
            appends=self.appends + self._commits.take(self._built_us),
            acks=list(self.acks.values()),
            mismatches=self.mismatches,
            vote_requests=self.vote_requests,
            votes=self.votes,
            fences=self._fences.take(self._built_us),
            leaderships=self._leaderships.take(self._built_us),
            upload_acks=self.upload_acks,
            job_asks=self.job_asks,
            job_tells=self.job_tells,
        )
        self._clear()
        return frame
